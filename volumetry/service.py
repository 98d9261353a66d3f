"""The deployed service, as the command line sees it: start, watch, stop, ask. AWS and the local region alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from volumetry.athena import Answer, ask
from volumetry.errors import BadRequest, RegionUnavailable, short
from volumetry.results import Results, State

STACKS = ("Network", "Results", "Workflow")
DATABASE = "volumetry"
WORKGROUP = "volumetry"
STOPPED = "Volumetry.Stopped"


@dataclass(frozen=True)
class Outputs:
    """What the deployed stacks are called."""

    campaign_machine: str
    tear_down_function: str
    analyse_function: str
    results_bucket: str


class Service(Results):
    """One deployment. Raises RegionUnavailable when AWS, or the local region, does not answer."""

    def __init__(self, session: Any, outputs: Outputs | None = None, endpoint: str | None = None) -> None:
        self._session = session
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        self.outputs = outputs or self._find_outputs()

    def client(self, name: str) -> Any:
        if name not in self._clients:
            config = Config(retries={"mode": "standard", "max_attempts": 4}, s3={"addressing_style": "path"})
            try:
                self._clients[name] = self._session.client(name, endpoint_url=self._endpoint, config=config)
            except BotoCoreError as error:
                raise RegionUnavailable(f"AWS cannot be reached: {error}") from None
        return self._clients[name]

    def _find_outputs(self) -> Outputs:
        found: dict[str, str] = {}
        try:
            for name in STACKS:
                stack = self.client("cloudformation").describe_stacks(StackName=f"Volumetry-{name}")["Stacks"][0]
                found |= {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
        except (ClientError, BotoCoreError) as error:
            hint = "deploy it with `cdk deploy --all`, and check credentials and region"
            raise RegionUnavailable(f"Volumetry is not deployed here ({short(error)}); {hint}") from None
        return outputs_of(found)

    # -- executions ----------------------------------------------------------------------------------------------

    def start(self, execution: str, campaign: str) -> None:
        """Start an execution of that name on a campaign given as JSON text."""
        self.client("stepfunctions").start_execution(
            stateMachineArn=self.outputs.campaign_machine, name=execution, input=campaign
        )

    def state(self, execution: str) -> State:
        try:
            found = self.client("stepfunctions").describe_execution(executionArn=self._arn(execution))
        except ClientError as error:
            raise BadRequest(f"execution {execution!r} is not known: {short(error)}") from None
        return State(found["status"], found["startDate"].isoformat(), found.get("error", ""), found.get("cause", ""))

    def stop(self, execution: str, cause: str) -> None:
        """Ask the execution to stop; what it launched is torn down by the rule on executions that end badly."""
        self.client("stepfunctions").stop_execution(executionArn=self._arn(execution), error=STOPPED, cause=cause)

    def _arn(self, execution: str) -> str:
        return self.outputs.campaign_machine.replace(":stateMachine:", ":execution:") + ":" + execution

    def tear_down(self, execution: str, *, list_only: bool = False) -> list[str]:
        """Delete what is left of an execution, and list afresh what is still there."""
        payload = {"execution": execution, "list_only": list_only}
        left: list[str] = self._invoke(self.outputs.tear_down_function, payload)["left_behind"]
        return left

    def analyse(self, execution: str, began: str, left: list[str]) -> None:
        """Write the report of an execution that was stopped: what it had committed is kept and shown."""
        self._invoke(
            self.outputs.analyse_function,
            {
                "execution": execution,
                "began": began,
                "error": STOPPED,
                "cause": "stopped by the user",
                "left_behind": left,
            },
        )

    def _invoke(self, function: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = self.client("lambda").invoke(FunctionName=function, Payload=json.dumps(payload))
        content: dict[str, Any] = json.load(answer["Payload"])
        if "FunctionError" in answer:
            raise RegionUnavailable(f"function {function} failed: {content.get('errorMessage', content)}")
        return content

    # -- results -------------------------------------------------------------------------------------------------

    def keys(self, prefix: str) -> list[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.outputs.results_bucket, Prefix=prefix)
        return [entry["Key"] for page in found for entry in page.get("Contents", [])]

    def get(self, key: str) -> bytes | None:
        try:
            content: bytes = self.client("s3").get_object(Bucket=self.outputs.results_bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        return content

    def executions(self) -> list[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.outputs.results_bucket, Prefix="executions/", Delimiter="/")
        return [entry["Prefix"].split("/")[1] for page in found for entry in page.get("CommonPrefixes", [])]

    # -- SQL -----------------------------------------------------------------------------------------------------

    def query(self, sql: str) -> Answer:
        """Run one statement of Athena SQL; raises BadRequest with Athena's own reason when it fails."""
        return ask(self.client("athena"), sql, database=DATABASE, workgroup=WORKGROUP)


def outputs_of(found: Mapping[str, str]) -> Outputs:
    """The stacks' outputs by the names that the stacks give them."""
    return Outputs(
        campaign_machine=found["CampaignMachineArn"],
        tear_down_function=found["TearDownFunctionName"],
        analyse_function=found["AnalyseFunctionName"],
        results_bucket=found["ResultsBucketName"],
    )


def aws(profile: str | None = None) -> Service:
    """Volumetry as deployed in the AWS account and region of the environment."""
    try:
        return Service(boto3.Session(profile_name=profile))
    except BotoCoreError as error:
        raise RegionUnavailable(f"AWS cannot be reached: {error}") from None
