"""Deletes the topologies of an execution, or of all that are past their deadline, and lists afresh what is left.

Three callers that do not trust each other: the campaign's own state machine, an event rule on executions that ended
badly, and an hourly sweep. A fourth layer, the schedule in each stack, needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from pydantic import BaseModel

from functions.logging import logger
from volumetry import naming

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

_GONE = ("terminated", "shutting-down")


class Event(BaseModel):
    """An execution's name, or an EventBridge event whose ``detail`` holds it; neither: the sweep.

    ``list_only`` deletes nothing.
    """

    execution: str | None = None
    detail: dict[str, Any] | None = None
    list_only: bool = False

    @property
    def name(self) -> str | None:
        return self.detail["name"] if self.detail else self.execution


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.name)
    left = list(_delete(request))
    left += _resources(request.name) if request.name else []
    logger.info("torn down" if not left else "tearing down", extra={"left_behind": left})
    return {"left_behind": left}


def _delete(request: Event) -> Iterator[str]:
    """Begin the deletion of every stack concerned; gives their names: a stack is left until it is gone."""
    for stack in _stacks():
        tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
        if tags.get("application") != naming.TAG_APPLICATION or naming.TAG_EXECUTION not in tags:
            continue
        if request.name is None and not _overdue(tags):
            continue
        if request.name is not None and tags[naming.TAG_EXECUTION] != request.name:
            continue
        if not request.list_only and stack["StackStatus"] != "DELETE_IN_PROGRESS":
            _cloudformation().delete_stack(StackName=stack["StackId"])
        yield f"stack {stack['StackName']}: {stack['StackStatus']}"


def _overdue(tags: dict[str, str]) -> bool:
    deadline = tags.get(naming.TAG_DEADLINE, "")
    return deadline <= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _resources(execution: str) -> Iterator[str]:
    """What still carries the execution's tag, listed afresh: a stack that is gone proves nothing by itself."""
    ours: list[FilterTypeDef] = [{"Name": f"tag:{naming.TAG_EXECUTION}", "Values": [execution]}]
    for page in _ec2().get_paginator("describe_instances").paginate(Filters=ours):
        for reservation in page["Reservations"]:
            for instance in reservation["Instances"]:
                if instance["State"]["Name"] not in _GONE:
                    yield f"instance {instance['InstanceId']}: {instance['State']['Name']}"
    for volumes in _ec2().get_paginator("describe_volumes").paginate(Filters=ours):
        yield from (f"volume {volume['VolumeId']}: {volume['State']}" for volume in volumes["Volumes"])
    for links in _ec2().get_paginator("describe_network_interfaces").paginate(Filters=ours):
        yield from (f"interface {link['NetworkInterfaceId']}: {link['Status']}" for link in links["NetworkInterfaces"])


def _stacks() -> Iterator[StackTypeDef]:
    for page in _cloudformation().get_paginator("describe_stacks").paginate():
        yield from page["Stacks"]


@cache
def _cloudformation() -> CloudFormationClient:
    return boto3.client("cloudformation")


@cache
def _ec2() -> EC2Client:
    return boto3.client("ec2")
