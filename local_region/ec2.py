"""EC2's requests: IAM's say, EC2's rules about what is in use, and who carries an operation out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from local_region import authorization
from local_region.authorization import Resource
from local_region.compute import Compute
from local_region.ec2_protocol import Answer, Refused, decode, encode, refusal
from local_region.identity import REGION
from local_region.instances import interface_requests, profile
from local_region.records import Record, specified_tags, tag_map, tags_of

Request = Mapping[str, Any]
Handler = Callable[..., Awaitable[Answer]]

# What ministack would do on records that are not ours.
_REFUSED = frozenset(
    "CreateFleet CreateSnapshot CreateSnapshots ModifyVolume RequestSpotInstances RegisterImage CreateImage "
    "AssociateIamInstanceProfile".split()
)


@dataclass
class Ec2:
    """EC2's handler: our operations, then ministack's."""

    compute: Compute

    def handler(self, original: Handler) -> Handler:
        async def handle(
            method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, list[str]]
        ) -> Answer:
            form = {**query, **parse_qs(body.decode(), keep_blank_values=True)}
            action = form.get("Action", [""])[0]
            if action in _OURS and (answer := await asyncio.to_thread(self._carry_out, action, headers, form)):
                return answer
            return await original(method, path, headers, body, query)

        return handle

    def _carry_out(self, action: str, headers: Mapping[str, str], form: Mapping[str, list[str]]) -> Answer | None:
        """The answer to an operation; None leaves one that IAM allows to ministack."""
        try:
            if action in _REFUSED:
                raise Refused("UnsupportedOperation", f"The local region does not carry out {action}.")
            request = decode(action, form)
            self._authorize(headers, action, request)
            if action in OPERATIONS:
                answer = OPERATIONS[action](self.compute, request)
                return None if answer is None else encode(action, answer)
            self._guard(action, request)
        except authorization.DeniedError as error:
            message = f"You are not authorized to perform this operation. {error}"
            return refusal(Refused("UnauthorizedOperation", message, 403))
        except Refused as error:
            return refusal(error)
        return None

    def _authorize(self, headers: Mapping[str, str], action: str, request: Request) -> None:
        if action in RESOURCES:
            authorization.authorize(headers, f"ec2:{action}", RESOURCES[action](self.compute, request))
        if request.get("TagSpecifications"):
            tagged = [
                Resource(
                    authorization.arn("ec2", f"{one['ResourceType']}/*"),
                    requested=tag_map(one.get("Tags", [])),
                    keys={"ec2:CreateAction": action},
                )
                for one in request["TagSpecifications"]
            ]
            authorization.authorize(headers, "ec2:CreateTags", tagged)
        asked = request.get("IamInstanceProfile")
        for role in profile(asked)["_roles"] if asked else []:
            authorization.authorize_pass_role(headers, role, "ec2.amazonaws.com")

    def _guard(self, action: str, request: Request) -> None:
        """What EC2 refuses to delete while something uses it; ministack cannot know."""
        if action not in _GUARDED:
            return
        key = _GUARDED[action]
        users = self.compute.users(key, request.get(key, ""))
        if users:
            code = "InvalidPlacementGroup.InUse" if key == "GroupName" else "DependencyViolation"
            raise Refused(code, f"resource {request.get(key)} has a dependent object: {', '.join(users)}")


Operation = Callable[[Compute, Request], Record | None]

OPERATIONS: dict[str, Operation] = {
    "RunInstances": Compute.run_instances,
    "DescribeInstances": Compute.describe_instances,
    "DescribeInstanceStatus": Compute.describe_instance_status,
    "DescribeInstanceTypes": Compute.describe_instance_types,
    "DescribeInstanceTypeOfferings": Compute.describe_instance_type_offerings,
    "DescribeImages": Compute.describe_images,
    "TerminateInstances": Compute.terminate_instances,
    "StopInstances": Compute.stop_instances,
    "StartInstances": Compute.start_instances,
    "CreateVolume": Compute.create_volume,
    "DeleteVolume": Compute.delete_volume,
    "DescribeVolumes": Compute.describe_volumes,
    "AttachVolume": Compute.attach_volume,
    "DetachVolume": Compute.detach_volume,
    "CreateNetworkInterface": Compute.create_network_interface,
    "DeleteNetworkInterface": Compute.delete_network_interface,
    "DescribeNetworkInterfaces": Compute.describe_network_interfaces,
    "AttachNetworkInterface": Compute.attach_network_interface,
    "DetachNetworkInterface": Compute.detach_network_interface,
}
# ministack's deletions, and the key that must not name what something of ours uses.
_GUARDED = {
    "DeleteSecurityGroup": "GroupId",
    "DeleteSubnet": "SubnetId",
    "DeleteVpc": "VpcId",
    "DeletePlacementGroup": "GroupName",
}


def _resource(kind: str, name: str, request: Request | None = None) -> Resource:
    requested = tag_map(specified_tags(request, kind)) if request else {}
    return Resource(
        authorization.arn("ec2", f"{kind}/{name}"),
        tags=tag_map(tags_of(name)) if name != "*" else {},
        requested=requested,
        keys={"ec2:InstanceType": request["InstanceType"]} if request and "InstanceType" in request else {},
    )


def _run_resources(_compute: Compute, request: Request) -> Iterable[Resource]:
    yield Resource(f"arn:aws:ec2:{REGION}::image/{request.get('ImageId', '*')}")
    for kind in ("instance", "network-interface", "volume"):
        yield _resource(kind, "*", request)
    for one in interface_requests(request):
        if one.get("SubnetId"):
            yield _resource("subnet", one["SubnetId"])
        for group in one.get("Groups") or []:
            yield _resource("security-group", group)


def _instances(_compute: Compute, request: Request) -> Iterable[Resource]:
    return [_resource("instance", one) for one in request["InstanceIds"]]


def _volume(_compute: Compute, request: Request) -> Iterable[Resource]:
    yield _resource("volume", request["VolumeId"])
    if "InstanceId" in request:
        yield _resource("instance", request["InstanceId"])


def _interface(_compute: Compute, request: Request) -> Iterable[Resource]:
    yield _resource("network-interface", request["NetworkInterfaceId"])
    if "InstanceId" in request:
        yield _resource("instance", request["InstanceId"])


def _new_interface(_compute: Compute, request: Request) -> Iterable[Resource]:
    yield _resource("network-interface", "*", request)
    yield _resource("subnet", request["SubnetId"])
    for group in request.get("Groups", []):
        yield _resource("security-group", group)


def _attached_interface(compute: Compute, request: Request) -> Iterable[Resource]:
    record = compute.interfaces.by_attachment(request["AttachmentId"])
    yield _resource("network-interface", record["NetworkInterfaceId"])
    yield _resource("instance", record["Attachment"]["InstanceId"])


def _placement(_compute: Compute, request: Request) -> Iterable[Resource]:
    requested = tag_map(specified_tags(request, "placement-group"))
    yield Resource(authorization.arn("ec2", f"placement-group/{request['GroupName']}"), requested=requested)


def _new_group(_compute: Compute, request: Request) -> Iterable[Resource]:
    yield _resource("security-group", "*", request)
    if "VpcId" in request:
        yield _resource("vpc", request["VpcId"])


_KINDS = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "sg": "security-group",
    "pg": "placement-group",
    "igw": "internet-gateway",
    "rtb": "route-table",
    "fl": "vpc-flow-log",
    "nat": "natgateway",
    "lt": "launch-template",
    "ami": "image",
}


def _tagging(_compute: Compute, request: Request) -> Iterable[Resource]:
    requested = tag_map([{"Value": "", **one} for one in request.get("Tags", [])])
    for name in request["Resources"]:
        prefix = name.partition("-")[0]
        arn = authorization.arn("ec2", f"{_KINDS.get(prefix, prefix)}/{name}")
        yield Resource(arn, tags=tag_map(tags_of(name)), requested=requested)


RESOURCES: dict[str, Callable[[Compute, Request], Iterable[Resource]]] = {
    "RunInstances": _run_resources,
    "TerminateInstances": _instances,
    "StopInstances": _instances,
    "StartInstances": _instances,
    "CreateVolume": lambda _compute, request: [_resource("volume", "*", request)],
    "DeleteVolume": _volume,
    "AttachVolume": _volume,
    "DetachVolume": _volume,
    "CreateNetworkInterface": _new_interface,
    "DeleteNetworkInterface": _interface,
    "AttachNetworkInterface": _interface,
    "DetachNetworkInterface": _attached_interface,
    "CreatePlacementGroup": _placement,
    "DeletePlacementGroup": _placement,
    "CreateSecurityGroup": _new_group,
    "CreateTags": _tagging,
    "DeleteTags": _tagging,
}
authorization.decides(*(f"ec2:{action}" for action in RESOURCES))
_OURS = {*OPERATIONS, *RESOURCES, *_GUARDED, *_REFUSED}
