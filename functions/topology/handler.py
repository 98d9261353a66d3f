"""Follows a topology from its stack to its hosts: what was launched, when it is ready, why it failed."""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import boto3
from botocore.exceptions import ClientError
from pydantic import BaseModel

from functions.environment import Deployment, deployment
from functions.logging import logger
from functions.store import Store
from volumetry import commands, naming
from volumetry.errors import LaunchFailed
from volumetry.plan import Plan, PlannedTopology
from volumetry.topologies import DEVICES

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackEventTypeDef
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


class Event(BaseModel):
    """``topology`` is a launch: a topology, or the name of several that share host1.

    ``launched`` asks for the commands that configure the hosts; ``reason`` says why it ``failed``.
    """

    action: Literal["launched", "ready", "failed"]
    execution: str
    topology: str
    reason: str = ""


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.execution, topology=request.topology)
    store = Store(deployment().results_bucket)
    match request.action:
        case "launched":
            return launched(request, deployment(), store)
        case "ready":
            return _note(request, store, {"status": "ready"})
        case "failed":
            return failed(request, store)


def launched(request: Event, environment: Deployment, store: Store) -> dict[str, Any]:
    """Write down the hosts of a created stack; gives their ids and the commands that configure them, in order."""
    planned = _plan(request, store)
    found = find_hosts(naming.stack_name(request.execution, request.topology), planned.members(request.topology))
    together = list({host.name: host for hosts in found.values() for host in hosts}.values())
    steps: list[commands.Command] = []
    for name, hosts in found.items():
        _note_one(request, name, store, {"status": "configuring", "hosts": [vars(host) for host in hosts]})
        steps += commands.configure(name, planned.topologies[name], hosts, together, planned.tools(name))
    return {
        "instance_ids": [host.instance_id for host in together],
        "commands": [step.to_machine(environment.documents) for step in steps],
    }


def _plan(request: Event, store: Store) -> Plan:
    return Plan.model_validate_json(store.get(naming.Keys(request.execution).plan) or b"")


def failed(request: Event, store: Store) -> dict[str, Any]:
    """Write down why a topology failed, and begin the deletion of its stack."""
    stack = naming.stack_name(request.execution, request.topology)
    reason = _first_failure(stack) or request.reason
    _cloudformation().delete_stack(StackName=stack)
    return _note(request, store, {"status": "failed", "reason": reason})


def _note(request: Event, store: Store, news: dict[str, Any]) -> dict[str, Any]:
    """The same news of every topology of the launch."""
    notes = [_note_one(request, name, store, news) for name in _plan(request, store).members(request.topology)]
    return notes[0]


def _note_one(request: Event, name: str, store: Store, news: dict[str, Any]) -> dict[str, Any]:
    key = naming.Keys(request.execution).topology(name)
    note = (store.get_json(key) or {}) | {"reason": ""} | news
    store.put_json(key, note)
    logger.info(name, extra=news)
    return {"status": note["status"], "reason": note["reason"]}


@cache
def _cloudformation() -> "CloudFormationClient":
    return boto3.client("cloudformation")


@cache
def _ec2() -> "EC2Client":
    return boto3.client("ec2")


def find_hosts(stack: str, members: dict[str, PlannedTopology]) -> dict[str, list[commands.Host]]:
    """Topology -> its hosts, of a created stack, in the order of their names; raises LaunchFailed when one is missing.

    A host that several topologies share has the volume of each.
    """
    described = _cloudformation().describe_stacks(StackName=stack)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"].split(",") for output in described["Outputs"]}
    ids = outputs["InstanceIds"]
    reservations = _ec2().describe_instances(InstanceIds=ids)["Reservations"]
    instances = {each["InstanceId"]: each for reservation in reservations for each in reservation["Instances"]}
    zones = _zone_ids({instance["Placement"]["AvailabilityZone"] for instance in instances.values()})
    seconds: list[str | None] = [*outputs.get("SecondAddresses", [])] or [None] * len(ids)
    found = {}
    for name, topology in members.items():
        device = DEVICES[topology.number]
        volumes = _volumes(ids, device)
        # host1 is the first that the stack names, and so on.
        numbers = {host: int(host.removeprefix("host")) - 1 for host in topology.hosts}
        found[name] = [
            _host(host, az, instances[ids[numbers[host]]], seconds[numbers[host]], volumes, device, zones)
            for host, az in topology.hosts.items()
        ]
    return found


def _host(
    name: str,
    az: str,
    instance: "InstanceTypeDef",
    second: str | None,
    volumes: dict[str, str],
    device: str,
    zones: dict[str, str],
) -> commands.Host:
    identifier = instance["InstanceId"]
    if identifier not in volumes:
        raise LaunchFailed(f"{name} ({identifier}) has no volume at {device}")
    return commands.Host(
        name=name,
        instance_id=identifier,
        address=instance["PrivateIpAddress"],
        second_address=second,
        volume_id=volumes[identifier],
        az=az,
        az_id=zones[instance["Placement"]["AvailabilityZone"]],
        image_id=instance["ImageId"],
    )


def _volumes(instance_ids: list[str], device: str) -> dict[str, str]:
    """Instance id -> id of the volume under test."""
    pages = (
        _ec2()
        .get_paginator("describe_volumes")
        .paginate(
            Filters=[
                {"Name": "attachment.instance-id", "Values": instance_ids},
                {"Name": "attachment.device", "Values": [device]},
            ]
        )
    )
    return {
        attachment["InstanceId"]: volume["VolumeId"]
        for page in pages
        for volume in page["Volumes"]
        for attachment in volume["Attachments"]
        if attachment["Device"] == device
    }


def _zone_ids(names: set[str]) -> dict[str, str]:
    """AZ names differ between accounts; their ids do not."""
    zones = _ec2().describe_availability_zones(ZoneNames=sorted(names))["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}


def _first_failure(stack: str) -> str:
    """Why the stack failed, in CloudFormation's words; empty when it did not, or does not exist."""
    try:
        pages = _cloudformation().get_paginator("describe_stack_events").paginate(StackName=stack)
        events = [event for page in pages for event in page["StackEvents"]]
    except ClientError:
        return ""
    return _reason(events)


def _reason(events: list["StackEventTypeDef"]) -> str:
    """Events come newest first; the first failure in time caused the others."""
    for event in reversed(events):
        if event.get("ResourceStatus", "").endswith("CREATE_FAILED"):
            return f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
    return ""
