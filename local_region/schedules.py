"""EventBridge rules and Scheduler: what they fire, as the role that they are given."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from local_region import authorization, identity
from local_region.ec2_protocol import Answer
from local_region.seams import mend, setting

log = logging.getLogger("local_region.schedules")

Handler = Callable[..., Awaitable[Answer]]

SERVICE_PRINCIPAL = "scheduler.amazonaws.com"
_UNIVERSAL = re.compile(r"arn:aws:scheduler:::aws-sdk:([a-z0-9]+):([A-Za-z0-9]+)")
_BOTO_NAMES = {"sfn": "stepfunctions", "eventbridge": "events", "cloudwatchlogs": "logs"}

setting(
    "ministack.services.scheduler:_SCHEDULE_TICK_INTERVAL",
    1,
    because="schedules of seconds' distance fire within a second",
    fingerprint="4a44dc153642",
)
setting(
    "ministack.services.eventbridge:_SCHEDULER_TICK_INTERVAL",
    1,
    because="rules of seconds' distance fire within a second",
    fingerprint="4a44dc153642",
)


def handler(original: Handler) -> Handler:
    """Scheduler's handler: a schedule's role has to trust Scheduler, and its maker has to be able to pass it."""

    async def handle(
        method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, list[str]]
    ) -> Answer:
        if method in ("POST", "PUT") and path.startswith("/schedules/"):
            role_arn = json.loads(body).get("Target", {}).get("RoleArn", "")
            try:
                authorization.authorize_pass_role(headers, role_arn, SERVICE_PRINCIPAL)
                identity.of_role(role_arn, service=SERVICE_PRINCIPAL, session="Scheduler")
            except authorization.DeniedError as error:
                return _refusal("AccessDeniedException", str(error), 403)
            except identity.CannotAssumeRoleError:
                return _refusal(
                    "ValidationException",
                    "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
                    400,
                )
        return await original(method, path, headers, body, query)

    return handle


def _refusal(code: str, message: str, status: int) -> Answer:
    headers = {"Content-Type": "application/json", "x-amzn-errortype": code}
    return status, headers, json.dumps({"__type": code, "Message": message}).encode()


_firing: ContextVar[tuple[dict[str, Any], dict[str, Any]]] = ContextVar("firing")


@mend(
    "ministack.services.eventbridge:_invoke_target",
    because="universal targets, and targets with a role, are called as that role",
    fingerprint="550e304af080",
)
def _invoke_target(
    original: Callable[..., None], target: dict[str, Any], event: Any, rule: dict[str, Any], view: Any = None
) -> None:
    universal = _UNIVERSAL.fullmatch(target.get("Arn", ""))
    token = _firing.set((target, rule))
    try:
        if universal:
            service, action = universal.groups()
            given = json.loads(target.get("Input") or "{}")
            _fire(_BOTO_NAMES.get(service, service), xform_name(action), given)
        else:
            original(target, event, rule, view)
    finally:
        _firing.reset(token)


@mend(
    "ministack.services.eventbridge:_dispatch_to_stepfunctions",
    because="an execution is started as the role of the target",
    fingerprint="d36195e1c480",
)
def _dispatch_to_stepfunctions(_original: Callable[..., None], arn: str, payload: str) -> None:
    _fire("stepfunctions", "start_execution", {"stateMachineArn": arn, "input": payload})


@mend(
    "ministack.services.eventbridge:_dispatch_to_lambda",
    because="a schedule invokes a function as its role; a rule by the function's own policy",
    fingerprint="1f95adbaed3a",
)
def _dispatch_to_lambda(original: Callable[..., None], arn: str, payload: str) -> None:
    target, _rule = _firing.get()
    if "RoleArn" in target:
        _fire("lambda", "invoke", {"FunctionName": arn, "InvocationType": "Event", "Payload": payload})
    else:
        original(arn, payload)


def _fire(service: str, operation: str, parameters: dict[str, Any]) -> None:
    """Call, on a thread of its own, as the role of the target that is being fired."""
    target, rule = _firing.get()
    arguments = (service, operation, parameters, target.get("RoleArn", ""), rule)
    threading.Thread(target=_call, args=arguments, name="scheduled-call", daemon=True).start()


def _call(service: str, operation: str, parameters: dict[str, Any], role_arn: str, rule: Mapping[str, Any]) -> None:
    name = rule.get("Name", "")
    # A rule's role trusts EventBridge, a schedule's Scheduler.
    principal = SERVICE_PRINCIPAL if "FlexibleTimeWindow" in rule else "events.amazonaws.com"
    try:
        credentials = identity.of_role(role_arn, service=principal, session=f"schedule-{name}")
        client = identity.client(service, credentials)
        getattr(client, operation)(**_cased(client, operation, parameters))
        log.info("%s fired %s %s", name, service, operation)
    except (BotoCoreError, ClientError, identity.CannotAssumeRoleError) as error:
        log.warning("%s could not fire %s %s: %s", name, service, operation, error)


def _cased(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Universal targets name parameters in Pascal case, which is not every service's own."""
    shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation]).input_shape
    names = {name.lower(): name for name in shape.members} if shape else {}
    return {names.get(name.lower(), name): value for name, value in parameters.items()}
