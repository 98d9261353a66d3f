"""Deploys a synthesised CDK cloud assembly to a region: assets, then stacks in the order of their dependencies."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from local_region.identity import ACCOUNT, REGION

# The qualifier of CDK's default bootstrap, and the version that its templates ask for at least.
_BOOTSTRAP_BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
_BOOTSTRAP_PARAMETER = ("/cdk-bootstrap/hnb659fds/version", "30")
_PLACEHOLDERS = {
    "${AWS::AccountId}": ACCOUNT,
    "${AWS::Region}": REGION,
    "${AWS::Partition}": "aws",
}
_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
# A stack in these states has nothing to update: it is made anew.
_DEAD = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")
_POLL_S = 0.1


class FailedError(RuntimeError):
    """A stack did not deploy; the message names the resource and the reason in one line."""


@dataclass(frozen=True)
class Stack:
    name: str
    template: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass
class Deployment:
    """One run over one assembly. Parameters are by stack name, then by parameter name."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _session: boto3.Session = field(init=False)

    def __post_init__(self) -> None:
        self._session = boto3.Session(self.access_key_id, self.secret_access_key, region_name=REGION)

    def run(self, assembly: Path) -> dict[str, dict[str, str]]:
        """Outputs by stack. FailedError: a stack rolled back."""
        self._bootstrap()
        outputs = {}
        for folder, artifact in _artifacts(assembly):
            properties = artifact.get("properties", {})
            if artifact["type"] == "cdk:asset-manifest":
                self._publish(folder, json.loads((folder / properties["file"]).read_text()))
            elif artifact["type"] == "aws:cloudformation:stack":
                stack = self._stack(folder, artifact)
                outputs[stack.name] = self._deploy(stack)
        return outputs

    def _client(self, service: str) -> Any:
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        return self._session.client(service, endpoint_url=self.endpoint, config=config)  # type: ignore[call-overload]

    def _bootstrap(self) -> None:
        s3 = self._client("s3")
        try:
            s3.head_bucket(Bucket=_BOOTSTRAP_BUCKET)
        except ClientError:
            s3.create_bucket(Bucket=_BOOTSTRAP_BUCKET)
            name, value = _BOOTSTRAP_PARAMETER
            self._client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    # Assets

    def _publish(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        s3 = self._client("s3")
        for asset in manifest.get("files", {}).values():
            source = asset["source"]
            for destination in asset["destinations"].values():
                bucket, key = _resolved(destination["bucketName"]), _resolved(destination["objectKey"])
                # The key is a hash of the content.
                if not _exists(s3, bucket, key):
                    s3.put_object(Bucket=bucket, Key=key, Body=_packed(folder / source["path"], source["packaging"]))
        if manifest.get("dockerImages"):
            raise FailedError("the local region takes no container images")

    # Stacks

    def _stack(self, folder: Path, artifact: Mapping[str, Any]) -> Stack:
        properties = artifact["properties"]
        name = properties.get("stackName") or artifact["displayName"]
        return Stack(
            name,
            (folder / properties["templateFile"]).read_text(),
            {**properties.get("parameters", {}), **self.parameters.get(name, {})},
            properties.get("tags", {}),
        )

    def _deploy(self, stack: Stack) -> dict[str, str]:
        cloudformation = self._client("cloudformation")
        known = _described(cloudformation, stack.name)
        if known and known["StackStatus"] in _DEAD:
            cloudformation.delete_stack(StackName=stack.name)
            self._wait(cloudformation, known["StackId"])
            known = None
        if known is None or not self._unchanged(cloudformation, stack, known):
            self._note(stack.name)
            operation = cloudformation.update_stack if known else cloudformation.create_stack
            operation(**self._request(stack))
            known = self._wait(cloudformation, stack.name)
            if known["StackStatus"] not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
                raise FailedError(f"{stack.name}: {_reason(cloudformation, known['StackId'])}")
            self._note(stack.name)
        return {one["OutputKey"]: one["OutputValue"] for one in known.get("Outputs", [])}

    def _request(self, stack: Stack) -> dict[str, Any]:
        body = stack.template.encode()
        key = f"templates/{hashlib.sha256(body).hexdigest()}.json"
        # A template beyond 51,200 bytes cannot be in the request.
        self._client("s3").put_object(Bucket=_BOOTSTRAP_BUCKET, Key=key, Body=body)
        return {
            "StackName": stack.name,
            "TemplateURL": f"https://s3.{REGION}.amazonaws.com/{_BOOTSTRAP_BUCKET}/{key}",
            "Parameters": [{"ParameterKey": name, "ParameterValue": value} for name, value in stack.parameters.items()],
            "Tags": [{"Key": name, "Value": value} for name, value in stack.tags.items()],
            "Capabilities": _CAPABILITIES,
        }

    def _unchanged(self, cloudformation: Any, stack: Stack, known: Mapping[str, Any]) -> bool:
        given = {one["ParameterKey"]: one["ParameterValue"] for one in known.get("Parameters", [])}
        tags = {one["Key"]: one["Value"] for one in known.get("Tags", [])}
        before = cloudformation.get_template(StackName=stack.name)["TemplateBody"]
        text = before if isinstance(before, str) else json.dumps(before)
        return (
            json.loads(text) == json.loads(stack.template)
            and all(given.get(name) == value for name, value in stack.parameters.items())
            and tags == stack.tags
        )

    def _wait(self, cloudformation: Any, name: str) -> dict[str, Any]:
        while True:
            stack = _described(cloudformation, name)
            if stack is None or not stack["StackStatus"].endswith("_IN_PROGRESS"):
                return stack or {"StackStatus": "DELETE_COMPLETE"}
            time.sleep(_POLL_S)

    def _note(self, stack_name: str) -> None:
        """Tell the region that the stack is to stay, and to keep its state."""
        body = json.dumps({"stack_name": stack_name}).encode()
        with urlopen(Request(f"{self.endpoint}/_local_region/deployed", body, method="POST")):  # noqa: S310
            pass


def _artifacts(assembly: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Artifacts with the folder of their assembly, each after what it depends on."""
    found = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        if name in done or name not in found:
            return
        done.add(name)
        artifact = found[name]
        for needed in artifact.get("dependencies", []):
            yield from visit(needed)
        if artifact["type"] == "cdk:cloud-assembly":
            yield from _artifacts(assembly / artifact["properties"]["directoryName"])
        else:
            yield assembly, {"displayName": name, **artifact}

    for name in found:
        yield from visit(name)


def _resolved(text: str) -> str:
    for placeholder, value in _PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    return text


def _exists(s3: Any, bucket: str, key: str) -> bool:
    try:
        s3.head_object(Bucket=bucket, Key=key)
    except ClientError:
        return False
    return True


def _packed(path: Path, packaging: str) -> bytes:
    if packaging == "file":
        return path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(path))
    return buffer.getvalue()


def _described(cloudformation: Any, name: str) -> dict[str, Any] | None:
    try:
        stack: dict[str, Any] = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return None
        raise
    return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack


def _reason(cloudformation: Any, stack_id: str) -> str:
    """The first resource that failed, and why."""
    events = cloudformation.describe_stack_events(StackName=stack_id)["StackEvents"]
    for event in reversed(events):
        if event["ResourceStatus"].endswith("_FAILED"):
            reason = " ".join(event.get("ResourceStatusReason", "").split())
            return f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}"
    return "it failed without a reason"
