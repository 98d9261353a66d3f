"""Lambda functions, alike in everything but what they do and may do."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64


class Function(Construct):
    """A function of ``functions/<name>/handler.py`` with a role and a log group of its own."""

    def __init__(
        self,
        scope: Construct,
        identifier: str,
        *,
        name: str,
        code: lambda_.Code,
        layer: lambda_.ILayerVersion,
        environment: dict[str, str],
        timeout: Duration,
        memory_mib: int = 512,
    ) -> None:
        super().__init__(scope, identifier)
        log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"Volumetry: {name.replace('_', ' ')}",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            handler=f"functions.{name}.handler.handler",
            code=code,
            layers=[layer],
            environment={"POWERTOOLS_SERVICE_NAME": name, **environment},
            timeout=timeout,
            memory_size=memory_mib,
            role=self.role.without_policy_updates(),
            log_group=log_group,
        )
