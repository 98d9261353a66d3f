"""SSM documents and Run Command: the steps of a document really run, on the hosts of instances."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local_region import authorization, identity, ssm_documents
from local_region.authorization import Resource
from local_region.compute import Compute
from local_region.document_store import Documents
from local_region.ec2_protocol import Answer
from local_region.hosts.base import Completed, Host
from local_region.records import Record, tag_map, tags_of
from local_region.ssm_documents import SsmError, Step

log = logging.getLogger("local_region.run_command")

Request = Mapping[str, Any]
Handler = Callable[..., Awaitable[Answer]]

_AGENT = "3.3.4100.0"
_MOST_INSTANCE_IDS = 50
_STDOUT_CHARACTERS, _STDERR_CHARACTERS, _PLUGIN_CHARACTERS = 24_000, 8_000, 2_500
_CUT = "\n---Output truncated---"
_DELIVERY_TIMEOUTS_S = range(30, 2_592_001)
# By it a script asks the agent to restart the node, and to run it again after.
_RESTART_EXIT_CODE = 194
# A node that restarts by itself finds the command that it was in, and begins it again: CommandRetryLimit of the agent.
_MOST_RESUMPTIONS = 15
# What the agent reports for a step that it had to stop.
_STOPPED_EXIT_CODE = 137
_KEPT_COMMANDS = 2_000
_ENDED = ("Success", "Failed", "TimedOut", "Cancelled")


@dataclass
class Plugin:
    """What became of a step on a node."""

    step: Step
    status: str = "Pending"
    exit_code: int = -1
    stdout: str = ""
    stderr: str = ""
    started: float | None = None
    ended: float | None = None


@dataclass
class Invocation:
    """A command on one node."""

    instance_id: str
    plugins: list[Plugin]
    status: str = "Pending"
    details: str = "Pending"
    lost: bool = False


@dataclass
class Command:
    command_id: str
    request: Request
    version: str
    invocations: dict[str, Invocation]
    requested: float
    delivery_timeout_s: int
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def most_errors(self) -> int:
        return _share(self.request.get("MaxErrors", "0"), len(self.invocations))

    @property
    def errors(self) -> int:
        return sum(one.details in ("Failed", "ExecutionTimedOut") for one in self.invocations.values())

    def expire(self) -> None:
        """A node that was lost is not heard of again: its invocation ends with its time-outs, as on AWS."""
        for one in self.invocations.values():
            limit = self.delivery_timeout_s + sum(plugin.step.timeout_s for plugin in one.plugins)
            if one.lost and one.status not in _ENDED and time.time() > self.requested + limit:
                one.status, one.details = "TimedOut", "ExecutionTimedOut"

    def status(self) -> tuple[str, str]:
        found = {one.status for one in self.invocations.values()}
        if not found:
            return "Success", "NoInstancesInTag"
        if found <= {"Pending"}:
            return "Pending", "Pending"
        if not found <= set(_ENDED):
            status = "Cancelling" if self.cancel.is_set() else "InProgress"
            return status, status
        if found == {"Success"}:
            return "Success", "Success"
        if self.errors > self.most_errors:
            return "Failed", "Failed"
        return ("Cancelled", "Cancelled") if found == {"Cancelled"} else ("Failed", "Incomplete")


def _share(text: str, of: int) -> int:
    return int(text[:-1]) * of // 100 if text.endswith("%") else int(text)


@dataclass
class RunCommand:
    """Documents and commands of the region, over the hosts of its instances."""

    compute: Compute
    documents: Documents = field(default_factory=Documents)
    _commands: dict[str, Command] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handler(self, original: Handler) -> Handler:
        """SSM's handler: our operations, then ministack's (parameters)."""

        async def handle(
            method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, list[str]]
        ) -> Answer:
            action = headers.get("x-amz-target", "").rpartition(".")[2]
            operation = OPERATIONS.get(action)
            if operation is None:
                return await original(method, path, headers, body, query)
            try:
                request = json.loads(body or b"{}")
                resources = _RESOURCES.get(action)
                if resources:
                    authorization.authorize(headers, f"ssm:{action}", resources(self, request))
                answer = await asyncio.to_thread(operation, self, request)
            except authorization.DeniedError as error:
                return _refusal("AccessDeniedException", str(error))
            except SsmError as error:
                return _refusal(error.code, str(error))
            except KeyError as error:
                return _refusal("ValidationException", f"{error} is required")
            return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answer).encode()

        return handle

    # Nodes

    def nodes(self) -> dict[str, Record]:
        """Instances that SSM manages: those whose role may register with it, once their host was up."""
        with self.compute.changed:
            records = [dict(record) for record in self.compute.instances.records.values()]
        return {
            record["InstanceId"]: record
            for record in records
            if record["State"]["Name"] != "pending" and self._may_register(record)
        }

    def _may_register(self, record: Record) -> bool:
        """The agent on the node calls UpdateInstanceInformation with the role of its instance profile."""
        roles = record.get("IamInstanceProfile", {}).get("_roles", [])
        try:
            credentials = identity.of_role(roles[0], service="ec2.amazonaws.com", session=record["InstanceId"])
            authorization.authorize_key(
                credentials.access_key_id,
                "ssm:UpdateInstanceInformation",
                [Resource(authorization.arn("ec2", f"instance/{record['InstanceId']}"))],
            )
        except (IndexError, identity.CannotAssumeRoleError, authorization.DeniedError):
            return False
        return True

    def describe_instance_information(self, request: Request) -> Record:
        wanted = [(one["Key"], one["Values"]) for one in request.get("Filters", [])]
        wanted += [(one["key"], one["valueSet"]) for one in request.get("InstanceInformationFilterList", [])]
        nodes = [self._information(record) for record in self.nodes().values()]
        return {
            "InstanceInformationList": [
                node for node in nodes if all(_node_passes(node, key, values) for key, values in wanted)
            ]
        }

    def _information(self, record: Record) -> Record:
        host = self.compute.host(record["InstanceId"])
        return {
            "InstanceId": record["InstanceId"],
            "PingStatus": "Online" if host and host.answers() else "ConnectionLost",
            "LastPingDateTime": time.time(),
            "AgentVersion": _AGENT,
            "IsLatestVersion": True,
            "PlatformType": "Linux",
            "PlatformName": "Amazon Linux",
            "PlatformVersion": "2023",
            "ResourceType": "EC2Instance",
            "IPAddress": record["PrivateIpAddress"],
            "ComputerName": record["PrivateDnsName"],
        }

    def _online(self) -> list[str]:
        hosts = {name: self.compute.host(name) for name in self.nodes()}
        return [name for name, host in hosts.items() if host and host.alive()]

    def _targets(self, request: Request) -> list[str]:
        ids: list[str] = request.get("InstanceIds", [])
        targets = request.get("Targets", [])
        if bool(ids) == bool(targets):
            raise SsmError("ValidationException", "Exactly one of InstanceIds and Targets has to be given")
        if len(ids) > _MOST_INSTANCE_IDS:
            raise SsmError("ValidationException", f"At most {_MOST_INSTANCE_IDS} InstanceIds; use Targets")
        online = self._online()
        unknown = [one for one in ids if one not in online]
        if unknown:
            raise SsmError(
                "InvalidInstanceId",
                f"Instances [[{', '.join(unknown)}]] not in a valid state for account {identity.ACCOUNT}",
            )
        return ids or [one for one in online if all(_matches(one, target) for target in targets)]

    # Operations

    def send_command(self, request: Request) -> Record:
        content, version = self.documents.content(request["DocumentName"], request.get("DocumentVersion"))
        values = ssm_documents.arguments(content, request.get("Parameters", {}))
        steps = ssm_documents.steps(content, values)
        timeout = request.get("TimeoutSeconds", 3600)
        if timeout not in _DELIVERY_TIMEOUTS_S:
            raise SsmError("ValidationException", f"TimeoutSeconds {timeout} is outside 30 to 2592000")
        instance_ids = self._targets(request)
        command = Command(
            str(uuid.uuid4()),
            request,
            version,
            {one: Invocation(one, [Plugin(step) for step in steps]) for one in instance_ids},
            time.time(),
            timeout,
        )
        with self._lock:
            self._commands[command.command_id] = command
            for oldest in list(self._commands)[:-_KEPT_COMMANDS]:
                del self._commands[oldest]
        threading.Thread(target=self._run, args=(command,), name=command.command_id, daemon=True).start()
        return {"Command": self._described(command)}

    def _run(self, command: Command) -> None:
        if not command.invocations:
            return
        at_once = max(1, _share(command.request.get("MaxConcurrency", "50"), len(command.invocations)))
        with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix=command.command_id) as pool:
            for invocation in command.invocations.values():
                pool.submit(self._invoke, command, invocation)

    def _invoke(self, command: Command, invocation: Invocation) -> None:
        host = self.compute.host(invocation.instance_id)
        if command.cancel.is_set():
            invocation.status = invocation.details = "Cancelled"
        elif command.errors > command.most_errors:
            invocation.status, invocation.details = "Failed", "Terminated"
        elif host is None:
            invocation.status, invocation.details = "Failed", "Undeliverable"
        else:
            invocation.status = invocation.details = "InProgress"
            try:
                invocation.status, invocation.details = self._run_steps(command, invocation, host)
            except Exception:
                log.exception("command %s on %s", command.command_id, invocation.instance_id)
                invocation.status = invocation.details = "Failed"

    def _run_steps(self, command: Command, invocation: Invocation, host: Host) -> tuple[str, str]:
        exiting = False
        for plugin in invocation.plugins:
            if exiting and not plugin.step.is_finally:
                continue
            completed = self._run_step(command, plugin, host)
            if completed.reason == "host-lost":
                invocation.lost = True
                return "InProgress", "InProgress"
            self._upload(command, invocation, plugin)
            if completed.reason == "cancelled":
                return "Cancelled", "Cancelled"
            wish = plugin.step.on_success if plugin.status == "Success" else plugin.step.on_failure
            exiting = exiting or wish in ("exit", "successAndExit")
            if plugin.status == "Failed" and wish == "successAndExit":
                plugin.status = "Success"
        found = [plugin.status for plugin in invocation.plugins]
        if "TimedOut" in found:
            return "TimedOut", "ExecutionTimedOut"
        return ("Failed", "Failed") if "Failed" in found else ("Success", "Success")

    def _run_step(self, command: Command, plugin: Plugin, host: Host) -> Completed:
        step = plugin.step
        plugin.started = time.time()
        plugin.status = "InProgress"
        if step.skipped:
            completed = Completed(0, f"Step execution skipped: {step.skipped}".encode(), b"")
        else:
            environment = {
                **step.environment,
                "AWS_SSM_INSTANCE_ID": host.instance_id,
                "AWS_SSM_REGION_NAME": identity.REGION,
            }
            completed = _run_script(host, step, environment, command.cancel)
        if completed.reason == "host-lost":
            return completed
        plugin.ended = time.time()
        plugin.stdout, plugin.stderr = (text.decode(errors="replace") for text in (completed.stdout, completed.stderr))
        plugin.exit_code = _STOPPED_EXIT_CODE if completed.exit_code is None else completed.exit_code
        plugin.status = {"timed-out": "TimedOut", "cancelled": "Cancelled"}.get(
            completed.reason, "Failed" if plugin.exit_code else "Success"
        )
        return completed

    def _upload(self, command: Command, invocation: Invocation, plugin: Plugin) -> None:
        """Whole output to S3, with the node's own role; the agent fails no command for it either."""
        bucket = command.request.get("OutputS3BucketName")
        if not bucket:
            return
        record = self.compute.instances[invocation.instance_id]
        with suppress(ClientError, BotoCoreError, identity.CannotAssumeRoleError):
            credentials = identity.of_role(
                record["IamInstanceProfile"]["_roles"][0],
                service="ec2.amazonaws.com",
                session=invocation.instance_id,
            )
            for name, text in (("stdout", plugin.stdout), ("stderr", plugin.stderr)):
                if text:
                    identity.client("s3", credentials).put_object(
                        Bucket=bucket, Key=_output_key(command, invocation, plugin, name), Body=text.encode()
                    )

    def _command(self, command_id: str) -> Command:
        with self._lock:
            command = self._commands.get(command_id)
        if command is None:
            raise SsmError("InvalidCommandId", "The command ID is not valid")
        command.expire()
        return command

    def get_command_invocation(self, request: Request) -> Record:
        with self._lock:
            command = self._commands.get(request["CommandId"])
        invocation = command and command.invocations.get(request["InstanceId"])
        if not command or not invocation:
            raise SsmError("InvocationDoesNotExist", "The command ID and managed node ID do not match any invocation")
        command.expire()
        name = request.get("PluginName")
        plugins = [one for one in invocation.plugins if name in (None, one.step.name)]
        if not plugins:
            raise SsmError("InvalidPluginName", f"The plugin name {name} is not valid")
        one = plugins[0] if len(plugins) == 1 else None
        started = next((plugin.started for plugin in plugins if plugin.started), None)
        ended = plugins[-1].ended if invocation.status in _ENDED or one else None
        return {
            "CommandId": command.command_id,
            "InstanceId": invocation.instance_id,
            "Comment": command.request.get("Comment", ""),
            "DocumentName": command.request["DocumentName"],
            "DocumentVersion": command.version,
            "PluginName": one.step.name if one else "",
            "ResponseCode": one.exit_code if one else _worst(plugins),
            "ExecutionStartDateTime": _moment(started),
            "ExecutionElapsedTime": f"PT{ended - started:.3f}S" if started and ended else "",
            "ExecutionEndDateTime": _moment(ended),
            "Status": invocation.status,
            "StatusDetails": invocation.details,
            # Of a document with several steps, output is shown for a named one alone.
            "StandardOutputContent": _cut(one.stdout, _STDOUT_CHARACTERS) if one else "",
            "StandardOutputUrl": _url(command, invocation, one, "stdout"),
            "StandardErrorContent": _cut(one.stderr, _STDERR_CHARACTERS) if one else "",
            "StandardErrorUrl": _url(command, invocation, one, "stderr"),
            "CloudWatchOutputConfig": {"CloudWatchLogGroupName": "", "CloudWatchOutputEnabled": False},
        }

    def list_command_invocations(self, request: Request) -> Record:
        details = request.get("Details", False)
        wanted = {one["key"]: one["value"] for one in request.get("Filters", [])}
        found = []
        for command in self._selected(request):
            for invocation in command.invocations.values():
                if request.get("InstanceId", invocation.instance_id) != invocation.instance_id:
                    continue
                if wanted.get("Status", invocation.status) not in (invocation.status, invocation.details):
                    continue
                found.append(_listed(command, invocation, details=details))
        return {"CommandInvocations": found}

    def list_commands(self, request: Request) -> Record:
        return {"Commands": [self._described(one) for one in self._selected(request)]}

    def _selected(self, request: Request) -> list[Command]:
        if "CommandId" in request:
            return [self._command(request["CommandId"])]
        with self._lock:
            commands = list(self._commands.values())
        instance_id = request.get("InstanceId")
        for one in commands:
            one.expire()
        return [one for one in reversed(commands) if instance_id is None or instance_id in one.invocations]

    def cancel_command(self, request: Request) -> Record:
        command = self._command(request["CommandId"])
        command.cancel.set()
        for invocation in command.invocations.values():
            if invocation.status == "InProgress" and not invocation.lost:
                invocation.status = invocation.details = "Cancelling"
        return {}

    def _described(self, command: Command) -> Record:
        status, details = command.status()
        invocations = command.invocations.values()
        return {
            "CommandId": command.command_id,
            "DocumentName": command.request["DocumentName"],
            "DocumentVersion": command.version,
            "Comment": command.request.get("Comment", ""),
            "ExpiresAfter": command.requested + command.delivery_timeout_s,
            "Parameters": command.request.get("Parameters", {}),
            "InstanceIds": command.request.get("InstanceIds", []),
            "Targets": command.request.get("Targets", []),
            "RequestedDateTime": command.requested,
            "Status": status,
            "StatusDetails": details,
            "OutputS3BucketName": command.request.get("OutputS3BucketName", ""),
            "OutputS3KeyPrefix": command.request.get("OutputS3KeyPrefix", ""),
            "MaxConcurrency": command.request.get("MaxConcurrency", "50"),
            "MaxErrors": command.request.get("MaxErrors", "0"),
            "TargetCount": len(command.invocations),
            "CompletedCount": sum(one.status in _ENDED for one in invocations),
            "ErrorCount": command.errors,
            "DeliveryTimedOutCount": sum(one.details == "Undeliverable" for one in invocations),
            "TimeoutSeconds": command.delivery_timeout_s,
        }


def _run_script(host: Host, step: Step, environment: Mapping[str, str], cancel: threading.Event) -> Completed:
    deadline = time.monotonic() + step.timeout_s
    resumptions = 0
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        completed = host.run(step.script, environment=environment, timeout_s=left_s, cancel=cancel)
        if completed.reason == "host-lost" and host.alive() and resumptions < _MOST_RESUMPTIONS:
            resumptions += 1
            continue
        if completed.exit_code != _RESTART_EXIT_CODE:
            return completed
        # A restart ends the command that asks for it; hosts that cannot restart go on, and keep the exit code.
        if host.run("reboot", environment={}, timeout_s=left_s, cancel=cancel).reason != "host-lost":
            return completed


def _listed(command: Command, invocation: Invocation, *, details: bool) -> Record:
    return {
        "CommandId": command.command_id,
        "InstanceId": invocation.instance_id,
        "InstanceName": "",
        "Comment": command.request.get("Comment", ""),
        "DocumentName": command.request["DocumentName"],
        "DocumentVersion": command.version,
        "RequestedDateTime": command.requested,
        "Status": invocation.status,
        "StatusDetails": invocation.details,
        "StandardOutputUrl": _url(command, invocation, None, "stdout"),
        "StandardErrorUrl": _url(command, invocation, None, "stderr"),
        "CommandPlugins": [_plugin(command, invocation, one) for one in invocation.plugins] if details else [],
    }


def _plugin(command: Command, invocation: Invocation, plugin: Plugin) -> Record:
    error = f"\n----------ERROR-------\n{plugin.stderr}" if plugin.stderr else ""
    times = {"ResponseStartDateTime": plugin.started, "ResponseFinishDateTime": plugin.ended}
    return {
        "Name": plugin.step.name,
        "Status": plugin.status,
        "StatusDetails": plugin.status,
        "ResponseCode": plugin.exit_code,
        "Output": _cut(plugin.stdout + error, _PLUGIN_CHARACTERS),
        "StandardOutputUrl": _url(command, invocation, plugin, "stdout"),
        "StandardErrorUrl": _url(command, invocation, plugin, "stderr"),
        **{key: moment for key, moment in times.items() if moment},
    }


def _worst(plugins: Iterable[Plugin]) -> int:
    codes = [plugin.exit_code for plugin in plugins]
    return next((code for code in codes if code > 0), codes[-1] if -1 not in codes else -1)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _output_key(command: Command, invocation: Invocation, plugin: Plugin, name: str) -> str:
    parts = [
        command.request.get("OutputS3KeyPrefix", "").strip("/"),
        command.command_id,
        invocation.instance_id,
        plugin.step.action.replace(":", ""),
        plugin.step.name,
        name,
    ]
    return "/".join(part for part in parts if part)


def _url(command: Command, invocation: Invocation, plugin: Plugin | None, name: str) -> str:
    bucket = command.request.get("OutputS3BucketName")
    if not bucket or plugin is None:
        return ""
    return f"https://s3.{identity.REGION}.amazonaws.com/{bucket}/{_output_key(command, invocation, plugin, name)}"


def _matches(instance_id: str, target: Request) -> bool:
    key, values = target["Key"], target["Values"]
    if key == "InstanceIds":
        return instance_id in values
    tags = tag_map(tags_of(instance_id))
    if key == "tag-key":
        return any(value in tags for value in values)
    if not key.startswith("tag:"):
        raise SsmError("InvalidTarget", f"The target key {key} is not valid")
    return tags.get(key[4:]) in values


def _node_passes(node: Record, key: str, values: list[str]) -> bool:
    if key.startswith("tag"):
        return _matches(node["InstanceId"], {"Key": key, "Values": values})
    names = {"InstanceIds": "InstanceId", "PingStatus": "PingStatus", "PlatformTypes": "PlatformType"}
    if key not in names:
        raise SsmError("InvalidFilterKey", f"The filter key {key} is not valid")
    return node[names[key]] in values


def _refusal(code: str, message: str) -> Answer:
    body = {"__type": code, "message": message, "Message": message}
    return 400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()


Operation = Callable[[RunCommand, Request], Record]

OPERATIONS: dict[str, Operation] = {
    "CreateDocument": lambda self, request: self.documents.create(request),
    "UpdateDocument": lambda self, request: self.documents.update(request),
    "UpdateDocumentDefaultVersion": lambda self, request: self.documents.set_default(request),
    "DescribeDocument": lambda self, request: self.documents.describe(request),
    "GetDocument": lambda self, request: self.documents.get(request),
    "ListDocuments": lambda self, request: self.documents.list(request),
    "DeleteDocument": lambda self, request: self.documents.delete(request),
    "SendCommand": RunCommand.send_command,
    "GetCommandInvocation": RunCommand.get_command_invocation,
    "ListCommandInvocations": RunCommand.list_command_invocations,
    "ListCommands": RunCommand.list_commands,
    "CancelCommand": RunCommand.cancel_command,
    "DescribeInstanceInformation": RunCommand.describe_instance_information,
}


def _document(_self: RunCommand, request: Request) -> Iterable[Resource]:
    name = str(request.get("Name") or request.get("DocumentName")).rpartition("document/")[2]
    owner = "" if name.startswith("AWS-") else identity.ACCOUNT
    yield Resource(f"arn:aws:ssm:{identity.REGION}:{owner}:document/{name}")


def _sending(self: RunCommand, request: Request) -> Iterable[Resource]:
    yield from _document(self, request)
    for instance_id in request.get("InstanceIds") or self._targets(request):
        tags = tag_map(tags_of(instance_id))
        yield Resource(
            authorization.arn("ec2", f"instance/{instance_id}"),
            tags=tags,
            keys={f"ssm:resourceTag/{key}": value for key, value in tags.items()},
        )


def _everything(_self: RunCommand, _request: Request) -> Iterable[Resource]:
    yield Resource(authorization.arn("ssm", "*"))


_RESOURCES: dict[str, Callable[[RunCommand, Request], Iterable[Resource]]] = {
    "CreateDocument": _document,
    "UpdateDocument": _document,
    "UpdateDocumentDefaultVersion": _document,
    "DescribeDocument": _document,
    "GetDocument": _document,
    "DeleteDocument": _document,
    "SendCommand": _sending,
    "GetCommandInvocation": _everything,
    "ListCommandInvocations": _everything,
    "ListCommands": _everything,
    "CancelCommand": _everything,
    "DescribeInstanceInformation": _everything,
}
authorization.decides(*(f"ssm:{action}" for action in _RESOURCES))
