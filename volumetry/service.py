"""The deployed service, as the command line sees it: start, watch, stop, ask. AWS and the local region alike."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from volumetry.errors import BadRequest, RegionUnavailable
from volumetry.naming import Keys, is_execution

if TYPE_CHECKING:
    from mypy_boto3_athena.type_defs import GetQueryResultsOutputTypeDef

STACKS = ("Network", "Results", "Workflow")
DATABASE = "volumetry"
WORKGROUP = "volumetry"
_ENDED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
# Athena's types that are numbers here; every other value stays text.
_NUMBERS: Mapping[str, Any] = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), int),
    **dict.fromkeys(("float", "real", "double"), float),
    "boolean": lambda text: text == "true",
}


@dataclass(frozen=True)
class Outputs:
    """What the deployed stacks are called."""

    campaign_machine: str
    tear_down_function: str
    results_bucket: str


@dataclass(frozen=True)
class State:
    """An execution's state in the words of Step Functions; ``error`` and ``cause`` when it ended badly."""

    status: str
    error: str = ""
    cause: str = ""

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


@dataclass(frozen=True)
class Answer:
    """The rows of a query, each value of the type that its column has; NULL is None."""

    columns: list[str]
    rows: list[list[Any]]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Service:
    """One deployment. Raises RegionUnavailable when AWS, or the local region, does not answer."""

    def __init__(self, session: Any, outputs: Outputs | None = None, endpoint: str | None = None) -> None:
        self._session = session
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        self.outputs = outputs or self._find_outputs()

    def _client(self, name: str) -> Any:
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
                stack = self._client("cloudformation").describe_stacks(StackName=f"Volumetry-{name}")["Stacks"][0]
                found |= {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
        except (ClientError, BotoCoreError) as error:
            hint = "deploy it with `cdk deploy --all`, and check credentials and region"
            raise RegionUnavailable(f"Volumetry is not deployed here ({_short(error)}); {hint}") from None
        return outputs_of(found)

    # -- executions ----------------------------------------------------------------------------------------------

    def start(self, execution: str, campaign: str) -> None:
        """Start an execution of that name on a campaign given as JSON text."""
        self._client("stepfunctions").start_execution(
            stateMachineArn=self.outputs.campaign_machine, name=execution, input=campaign
        )

    def state(self, execution: str) -> State:
        try:
            found = self._client("stepfunctions").describe_execution(executionArn=self._arn(execution))
        except ClientError as error:
            raise BadRequest(f"execution {execution!r} is not known: {_short(error)}") from None
        return State(found["status"], found.get("error", ""), found.get("cause", ""))

    def stop(self, execution: str, cause: str) -> None:
        """Ask the execution to stop; what it launched is torn down by the rule on executions that end badly."""
        self._client("stepfunctions").stop_execution(
            executionArn=self._arn(execution), error="Volumetry.Stopped", cause=cause
        )

    def _arn(self, execution: str) -> str:
        return self.outputs.campaign_machine.replace(":stateMachine:", ":execution:") + ":" + execution

    def tear_down(self, execution: str, *, list_only: bool = False) -> list[str]:
        """Delete what is left of an execution, and list afresh what is still there."""
        payload = json.dumps({"execution": execution, "list_only": list_only})
        answer = self._client("lambda").invoke(FunctionName=self.outputs.tear_down_function, Payload=payload)
        content = json.load(answer["Payload"])
        if "FunctionError" in answer:
            raise RegionUnavailable(f"tear-down failed: {content.get('errorMessage', content)}")
        left: list[str] = content["left_behind"]
        return left

    # -- results -------------------------------------------------------------------------------------------------

    def keys(self, prefix: str) -> list[str]:
        pages = self._client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.outputs.results_bucket, Prefix=prefix)
        return [entry["Key"] for page in found for entry in page.get("Contents", [])]

    def get(self, key: str) -> bytes | None:
        """The object, or None when there is none of that key."""
        try:
            content: bytes = self._client("s3").get_object(Bucket=self.outputs.results_bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        return content

    def get_json(self, key: str) -> Any:
        content = self.get(key)
        return None if content is None else json.loads(content)

    def executions(self) -> list[str]:
        """Names of all executions that have results."""
        pages = self._client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.outputs.results_bucket, Prefix="executions/", Delimiter="/")
        return [entry["Prefix"].split("/")[1] for page in found for entry in page.get("CommonPrefixes", [])]

    def summary(self, execution: str) -> dict[str, Any]:
        """The execution's summary; raises BadRequest when there is no such execution, or it has not ended."""
        known = self._known(execution)
        summary: dict[str, Any] | None = self.get_json(Keys(execution).summary)
        if summary is None:
            raise BadRequest(f"execution {execution} has no summary yet: it is {'running' if known else 'unknown'}")
        return summary

    def _known(self, execution: str) -> bool:
        if not is_execution(execution) or self.get(Keys(execution).plan) is None:
            from volumetry.errors import nearest  # noqa: PLC0415

            known = self.executions()
            listed = ", ".join(known[-5:]) or "none yet"
            raise BadRequest(f"execution {execution!r} is not known; known: {listed}{nearest(execution, known)}")
        return True

    # -- SQL -----------------------------------------------------------------------------------------------------

    def query(self, sql: str) -> Answer:
        """Run one statement of Athena SQL; raises BadRequest with Athena's own reason when it fails."""
        athena = self._client("athena")
        try:
            started = athena.start_query_execution(
                QueryString=sql, WorkGroup=WORKGROUP, QueryExecutionContext={"Database": DATABASE}
            )
        except ClientError as error:
            raise BadRequest(_short(error)) from None
        identifier, pause_s = started["QueryExecutionId"], 0.05
        while True:
            status = athena.get_query_execution(QueryExecutionId=identifier)["QueryExecution"]["Status"]
            if status["State"] == "SUCCEEDED":
                break
            if status["State"] in ("FAILED", "CANCELLED"):
                raise BadRequest(" ".join(status.get("StateChangeReason", status["State"]).split()))
            time.sleep(pause_s)
            pause_s = min(1.0, 1.5 * pause_s)
        pages = athena.get_paginator("get_query_results").paginate(QueryExecutionId=identifier)
        return _answer(pages)


def _answer(pages: "Iterator[GetQueryResultsOutputTypeDef]") -> Answer:
    columns: list[str] = []
    types: list[str] = []
    rows: list[list[Any]] = []
    for page in pages:
        found = page["ResultSet"]
        data = [[cell.get("VarCharValue") for cell in row["Data"]] for row in found["Rows"]]
        if not columns:
            info = found["ResultSetMetadata"]["ColumnInfo"]
            columns, types = [column["Name"] for column in info], [column["Type"] for column in info]
            # The first row of a SELECT's first page repeats the names.
            data = data[1:] if data and data[0] == columns else data
        rows += [[_typed(text, kind) for text, kind in zip(row, types, strict=True)] for row in data]
    return Answer(columns, rows)


def _typed(text: str | None, kind: str) -> Any:
    return None if text is None else _NUMBERS.get(kind, str)(text)


def outputs_of(found: Mapping[str, str]) -> Outputs:
    """The stacks' outputs by the names that the stacks give them."""
    return Outputs(found["CampaignMachineArn"], found["TearDownFunctionName"], found["ResultsBucketName"])


def aws(profile: str | None = None) -> Service:
    """Volumetry as deployed in the AWS account and region of the environment."""
    try:
        return Service(boto3.Session(profile_name=profile))
    except BotoCoreError as error:
        raise RegionUnavailable(f"AWS cannot be reached: {error}") from None


def _short(error: Exception) -> str:
    text = error.response["Error"].get("Message", "") if isinstance(error, ClientError) else str(error)
    return " ".join(text.split())


def local_folder(home: Path, account: str, bucket: str) -> Path:
    """Where the local region keeps a bucket's objects, as plain files."""
    return home / "s3" / account / bucket
