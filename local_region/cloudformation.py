"""CloudFormation types that ministack lacks, made over the region's public API as the stack's own identity.

The identity is the RoleARN of the stack, or else the caller of the operation; so IAM decides what a stack may
make. Every handler is idempotent, undoes what it made when it fails, and runs outside the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from botocore.exceptions import ClientError
from botocore.model import ListShape, Shape, StructureShape

from local_region import authorization, identity
from local_region.ec2_protocol import Answer
from local_region.seams import mend

Properties = dict[str, Any]
Made = tuple[str, dict[str, Any]]
Handler = Callable[..., Awaitable[Answer]]

SERVICE_PRINCIPAL = "cloudformation.amazonaws.com"
_STACKS = "ministack.services.cloudformation.stacks"
_ROLE_KEY = "_local_region_role_arn"
# A host of emulated CPU takes minutes to boot; CloudFormation itself would wait for hours.
_PATIENCE_S = 900
_RELEASE_S = 120
_POLL_S = 0.05


# The identity of a stack's operations


def handler(original: Handler) -> Handler:
    """CloudFormation's handler: ministack's, with the identity that the operation's resources are made by."""

    async def handle(
        method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, list[str]]
    ) -> Answer:
        form = {**query, **parse_qs(body.decode(), keep_blank_values=True)}
        role_arn = form.get("RoleARN", [""])[0]
        try:
            if role_arn:
                authorization.authorize_pass_role(headers, role_arn, SERVICE_PRINCIPAL)
            credentials = _credentials(headers, role_arn or _role_of(form))
        except (authorization.DeniedError, identity.CannotAssumeRoleError) as error:
            return _refusal("AccessDenied", str(error), 403)
        try:
            _authorize_template(headers, form.get("TemplateURL", [""])[0])
        except authorization.DeniedError:
            return _refusal("ValidationError", "S3 error: Access Denied", 400)
        with identity.acting_as(credentials):
            answer = await original(method, path, headers, body, query)
        if role_arn and answer[0] == 200 and (stack := _stack(form)):
            stack[_ROLE_KEY] = role_arn
        return answer

    return handle


def _authorize_template(headers: Mapping[str, str], url: str) -> None:
    """The caller must be allowed to read the template; ministack reads it as nobody in particular."""
    if url:
        template = authorization.Resource(f"arn:aws:s3:::{unquote(urlparse(url).path).lstrip('/')}")
        authorization.authorize(headers, "s3:GetObject", [template])


def _credentials(headers: Mapping[str, str], role_arn: str) -> identity.Credentials:
    from ministack.core.router import extract_access_key_id  # noqa: PLC0415

    if role_arn:
        return identity.of_role(role_arn, service=SERVICE_PRINCIPAL, session="AWSCloudFormation")
    return identity.of_key(extract_access_key_id(headers, {}))


def _stack(form: Mapping[str, list[str]]) -> dict[str, Any] | None:
    from ministack.services import cloudformation  # noqa: PLC0415

    name = form.get("StackName", [""])[0]
    named = name.split("/")[1] if name.startswith("arn:") else name
    stack: dict[str, Any] | None = cloudformation._stacks.get(named)
    return stack


def _role_of(form: Mapping[str, list[str]]) -> str:
    """The role that an earlier operation gave the stack; CloudFormation goes on using it."""
    stack = _stack(form)
    alive = stack and not stack["StackStatus"].startswith("DELETE_COMPLETE")
    return str(stack.get(_ROLE_KEY, "")) if stack and alive else ""


def _refusal(code: str, message: str, status: int) -> Answer:
    from ministack.services.cloudformation.helpers import _error  # noqa: PLC0415

    answer: Answer = _error(code, message, status)
    return answer


# Operations of one stack, one after the other

_locks: dict[str, asyncio.Lock] = {}


@mend(
    f"{_STACKS}:_deploy_stack_async",
    because="a stack that is deleted while it is created was created and deleted at once",
    fingerprint="34c0aed718d8",
)
async def _deploy_alone(original: Callable[..., Awaitable[None]], name: str, *args: Any, **kwargs: Any) -> None:
    async with _locks.setdefault(name, asyncio.Lock()):
        await original(name, *args, **kwargs)


@mend(
    f"{_STACKS}:_delete_stack_async",
    because="a stack that is deleted while it is created was created and deleted at once",
    fingerprint="910363eef2d9",
)
async def _delete_alone(original: Callable[..., Awaitable[None]], name: str, *args: Any, **kwargs: Any) -> None:
    from ministack.services import cloudformation  # noqa: PLC0415

    async with _locks.setdefault(name, asyncio.Lock()):
        stack = cloudformation._stacks.get(name)
        if stack and stack["StackStatus"] != "DELETE_COMPLETE":
            await original(name, *args, **kwargs)


@mend(
    f"{_STACKS}:_runs_on_worker_thread",
    because="our types call the region's endpoint, which the event loop serves",
    fingerprint="23955511141f",
)
def _runs_on_worker_thread(original: Callable[[str], bool], resource_type: str) -> bool:
    return original(resource_type) or resource_type in TYPES or resource_type == "AWS::StepFunctions::StateMachine"


# Calls


def _call(service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
    """A call as the stack; template values are brought to the types of its parameters."""
    client = identity.stack_client(service)
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation])
    return getattr(client, operation)(**_shaped(parameters, model.input_shape))


def _shaped(value: Any, shape: Shape) -> Any:
    """Templates carry numbers and booleans as strings, and strings as numbers. ValueError: unknown name."""
    if isinstance(shape, StructureShape):
        unknown = set(value) - set(shape.members)
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))} is not a parameter of {shape.name}")
        return {name: _shaped(item, shape.members[name]) for name, item in value.items() if item is not None}
    if isinstance(shape, ListShape):
        return [_shaped(item, shape.member) for item in value]
    if shape.type_name in ("integer", "long"):
        return int(value)
    if shape.type_name in ("float", "double"):
        return float(value)
    if shape.type_name == "boolean":
        return str(value).lower() == "true"
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _tagged(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    tags = properties.get("Tags")
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]} if tags else {}


def _without(properties: Mapping[str, Any], *names: str) -> Properties:
    return {name: value for name, value in properties.items() if name not in names}


def _delete(service: str, operation: str, *gone: str, **parameters: Any) -> None:
    """Delete what others may still be letting go of; what is gone already is deleted."""
    deadline = time.monotonic() + _RELEASE_S
    while True:
        try:
            _call(service, operation, parameters)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            if code in gone:
                return
            in_use = code in _IN_USE or "currently in use" in message
            if not in_use or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


_IN_USE = ("DependencyViolation", "VolumeInUse", "InvalidPlacementGroup.InUse")


# Instances


def _create_instance(logical_id: str, properties: Properties, stack_name: str) -> Made:
    request = {**_run_request(properties), "MinCount": 1, "MaxCount": 1}
    instance = _call("ec2", "run_instances", request)["Instances"][0]
    instance_id = instance["InstanceId"]
    try:
        for volume in properties.get("Volumes", []):
            _wait_for_instances([instance_id])
            _attach(volume["VolumeId"], instance_id, volume["Device"])
        # Instances of a stack start side by side: the one created last waits for all.
        if not _others_to_come(stack_name, logical_id):
            _wait_for_instances([*_instances_of(stack_name, "pending", "running"), instance_id])
    except Exception:
        _call("ec2", "terminate_instances", {"InstanceIds": [instance_id]})
        raise
    return instance_id, {
        "InstanceId": instance_id,
        "PrivateIp": instance["PrivateIpAddress"],
        "PrivateDnsName": instance["PrivateDnsName"],
        "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
        "VpcId": instance["VpcId"],
    }


_RENAMED = {"SecurityGroupIds", "Tags", "UserData", "IamInstanceProfile", "PlacementGroupName", "AvailabilityZone"}
_RENAMED |= {"Monitoring", "NetworkInterfaces", "Volumes", "SourceDestCheck", "Tenancy", "CreditSpecification"}
_RENAMED |= {"PropagateTagsToVolumeOnCreation"}


def _run_request(properties: Properties) -> Properties:
    request = _without(properties, *_RENAMED)
    placement = {
        "GroupName": properties.get("PlacementGroupName"),
        "AvailabilityZone": properties.get("AvailabilityZone"),
        "Tenancy": properties.get("Tenancy"),
    }
    request["Placement"] = {key: value for key, value in placement.items() if value}
    if "SecurityGroupIds" in properties and "NetworkInterfaces" not in properties:
        request["SecurityGroupIds"] = properties["SecurityGroupIds"]
    if "UserData" in properties:
        # botocore encodes what the template has encoded already.
        request["UserData"] = base64.b64decode(properties["UserData"]).decode()
    if "IamInstanceProfile" in properties:
        request["IamInstanceProfile"] = {"Name": properties["IamInstanceProfile"]}
    if "Monitoring" in properties:
        request["Monitoring"] = {"Enabled": properties["Monitoring"]}
    if "CreditSpecification" in properties:
        request["CreditSpecification"] = {"CpuCredits": properties["CreditSpecification"]["CPUCredits"]}
    if "NetworkInterfaces" in properties:
        request["NetworkInterfaces"] = [
            {**_without(one, "GroupSet"), **({"Groups": one["GroupSet"]} if "GroupSet" in one else {})}
            for one in properties["NetworkInterfaces"]
        ]
    tags = properties.get("Tags", [])
    kinds = ["instance"]
    if str(properties.get("PropagateTagsToVolumeOnCreation", "")).lower() == "true":
        kinds.append("volume")
    request["TagSpecifications"] = [{"ResourceType": kind, "Tags": tags} for kind in kinds if tags]
    return request


def _others_to_come(stack_name: str, logical_id: str) -> bool:
    from ministack.services import cloudformation  # noqa: PLC0415

    stack = cloudformation._stacks[stack_name]
    conditions = stack["_conditions"]
    return any(
        other != logical_id
        and resource["Type"] == "AWS::EC2::Instance"
        and conditions.get(resource.get("Condition"), True)
        and other not in stack["_resources"]
        for other, resource in stack["_template"]["Resources"].items()
    )


def _instances_of(stack_name: str, *states: str) -> list[str]:
    filters = [
        {"Name": "tag:aws:cloudformation:stack-name", "Values": [stack_name]},
        {"Name": "instance-state-name", "Values": list(states)},
    ]
    found = _call("ec2", "describe_instances", {"Filters": filters})
    return [one["InstanceId"] for reservation in found["Reservations"] for one in reservation["Instances"]]


def _wait_for_instances(instance_ids: list[str]) -> None:
    """Until all run. ValueError: one of them ended instead."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found = _described(instance_ids)
        for one in found:
            if one["State"]["Name"] not in ("pending", "running"):
                reason = one.get("StateReason", {}).get("Message", "")
                raise ValueError(f"Instance {one['InstanceId']} is {one['State']['Name']}: {reason}")
        if all(one["State"]["Name"] == "running" for one in found):
            return
        time.sleep(_POLL_S)
    raise ValueError(f"Instances {', '.join(instance_ids)} did not start within {_PATIENCE_S} s")


def _described(instance_ids: list[str]) -> list[dict[str, Any]]:
    found = _call("ec2", "describe_instances", {"InstanceIds": instance_ids})
    return [one for reservation in found["Reservations"] for one in reservation["Instances"]]


def _delete_instance(instance_id: str, _properties: Properties) -> None:
    try:
        _call("ec2", "terminate_instances", {"InstanceIds": [instance_id]})
        tags = {tag["Key"]: tag["Value"] for tag in _described([instance_id])[0].get("Tags", [])}
    except ClientError as error:
        if error.response["Error"]["Code"] == "InvalidInstanceID.NotFound":
            return
        raise
    # They also stop side by side: the one deleted last waits for all.
    stack_name = tags.get("aws:cloudformation:stack-name", "")
    deadline = time.monotonic() + _PATIENCE_S
    while not _instances_of(stack_name, "pending", "running", "stopping", "stopped"):
        ending = _instances_of(stack_name, "shutting-down")
        if not ending or time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)


# Volumes and interfaces


def _create_volume(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    request = {**_without(properties, "Tags", "AutoEnableIO"), **_tagged("volume", properties)}
    volume_id = _call("ec2", "create_volume", request)["VolumeId"]
    return volume_id, {"VolumeId": volume_id}


def _attach(volume_id: str, instance_id: str, device: str) -> None:
    _call("ec2", "attach_volume", {"VolumeId": volume_id, "InstanceId": instance_id, "Device": device})


def _create_attachment(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    _wait_for_instances([properties["InstanceId"]])
    _attach(properties["VolumeId"], properties["InstanceId"], properties["Device"])
    return f"{properties['VolumeId']}|{properties['InstanceId']}", {}


def _delete_attachment(physical_id: str, _properties: Properties) -> None:
    volume_id, instance_id = physical_id.split("|")
    gone = ("InvalidVolume.NotFound", "IncorrectState", "InvalidInstanceID.NotFound")
    _delete("ec2", "detach_volume", *gone, VolumeId=volume_id, InstanceId=instance_id)


def _create_interface(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    request = {
        **_without(properties, "Tags", "GroupSet", "SourceDestCheck"),
        **({"Groups": properties["GroupSet"]} if "GroupSet" in properties else {}),
        **_tagged("network-interface", properties),
    }
    made = _call("ec2", "create_network_interface", request)["NetworkInterface"]
    interface_id = made["NetworkInterfaceId"]
    return interface_id, {
        "Id": interface_id,
        "PrimaryPrivateIpAddress": made["PrivateIpAddress"],
        "VpcId": made["VpcId"],
    }


def _create_interface_attachment(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    _wait_for_instances([properties["InstanceId"]])
    request = _without(properties, "DeleteOnTermination")
    attachment_id = _call("ec2", "attach_network_interface", request)["AttachmentId"]
    return attachment_id, {"AttachmentId": attachment_id}


# Groups


def _create_placement_group(logical_id: str, properties: Properties, stack_name: str) -> Made:
    name = _name(stack_name, logical_id, 255)
    request = {**_without(properties, "Tags"), "GroupName": name, **_tagged("placement-group", properties)}
    _call("ec2", "create_placement_group", request)
    return name, {"GroupName": name}


def _create_security_group(logical_id: str, properties: Properties, stack_name: str) -> Made:
    request = {
        "GroupName": properties.get("GroupName") or _name(stack_name, logical_id, 255),
        "Description": properties["GroupDescription"],
        "VpcId": properties.get("VpcId"),
        **_tagged("security-group", properties),
    }
    group_id = _call("ec2", "create_security_group", request)["GroupId"]
    try:
        for rule in properties.get("SecurityGroupIngress", []):
            _call("ec2", "authorize_security_group_ingress", {"GroupId": group_id, "IpPermissions": [_rule(rule)]})
        if "SecurityGroupEgress" in properties:
            everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
            _call("ec2", "revoke_security_group_egress", {"GroupId": group_id, "IpPermissions": [everything]})
        for rule in properties.get("SecurityGroupEgress", []):
            _call("ec2", "authorize_security_group_egress", {"GroupId": group_id, "IpPermissions": [_rule(rule)]})
    except Exception:
        _call("ec2", "delete_security_group", {"GroupId": group_id})
        raise
    attributes = {"GroupId": group_id, "Id": group_id, "VpcId": properties.get("VpcId", "")}
    return group_id, attributes


def _rule(properties: Properties) -> Properties:
    """A template's rule as a permission of the API."""
    said = {"Description": properties["Description"]} if "Description" in properties else {}
    rule: Properties = {name: properties[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in properties}
    if "CidrIp" in properties:
        rule["IpRanges"] = [{"CidrIp": properties["CidrIp"], **said}]
    if "CidrIpv6" in properties:
        rule["Ipv6Ranges"] = [{"CidrIpv6": properties["CidrIpv6"], **said}]
    group = properties.get("SourceSecurityGroupId") or properties.get("DestinationSecurityGroupId")
    if group:
        rule["UserIdGroupPairs"] = [{"GroupId": group, **said}]
    prefixes = properties.get("SourcePrefixListId") or properties.get("DestinationPrefixListId")
    if prefixes:
        rule["PrefixListIds"] = [{"PrefixListId": prefixes, **said}]
    return rule


def _rules(direction: str) -> tuple[Callable[..., Made], Callable[..., None]]:
    """Handlers of AWS::EC2::SecurityGroupIngress or ...Egress."""

    def create(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
        request = {"GroupId": properties["GroupId"], "IpPermissions": [_rule(properties)]}
        made = _call("ec2", f"authorize_security_group_{direction}", request)["SecurityGroupRules"][0]
        return made["SecurityGroupRuleId"], {"Id": made["SecurityGroupRuleId"]}

    def delete(rule_id: str, properties: Properties) -> None:
        _delete(
            "ec2",
            f"revoke_security_group_{direction}",
            "InvalidGroup.NotFound",
            "InvalidSecurityGroupRuleId.NotFound",
            "InvalidPermission.NotFound",
            GroupId=properties["GroupId"],
            SecurityGroupRuleIds=[rule_id],
        )

    return create, delete


# Network


def _create_address(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    made = _call("ec2", "allocate_address", {"Domain": "vpc", **_tagged("elastic-ip", properties)})
    return made["PublicIp"], {"AllocationId": made["AllocationId"], "PublicIp": made["PublicIp"]}


def _delete_address(public_ip: str, _properties: Properties) -> None:
    found = _call("ec2", "describe_addresses", {"Filters": [{"Name": "public-ip", "Values": [public_ip]}]})
    for one in found["Addresses"]:
        if one["PublicIp"] == public_ip:
            _delete("ec2", "release_address", "InvalidAllocationID.NotFound", AllocationId=one["AllocationId"])


def _create_nat_gateway(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    request = {
        **_without(properties, "Tags", "PrivateIpAddress", "MaxDrainDurationSeconds"),
        **_tagged("natgateway", properties),
    }
    made = _call("ec2", "create_nat_gateway", request)["NatGateway"]
    return made["NatGatewayId"], {"NatGatewayId": made["NatGatewayId"]}


def _create_flow_log(_logical_id: str, properties: Properties, _stack_name: str) -> Made:
    request = {
        **_without(properties, "Tags", "ResourceId"),
        "ResourceIds": [properties["ResourceId"]],
        **_tagged("vpc-flow-log", properties),
    }
    made = _call("ec2", "create_flow_logs", request)["FlowLogIds"][0]
    return made, {"Id": made}


# Profiles: ministack makes their ARN what Ref gives, and not their name


def _create_profile(logical_id: str, properties: Properties, stack_name: str) -> Made:
    name = properties.get("InstanceProfileName") or _name(stack_name, logical_id, 128)
    request = {"InstanceProfileName": name, "Path": properties.get("Path", "/")}
    made = _call("iam", "create_instance_profile", request)["InstanceProfile"]
    for role in properties["Roles"]:
        _call("iam", "add_role_to_instance_profile", {"InstanceProfileName": name, "RoleName": role})
    return name, {"Arn": made["Arn"]}


def _delete_profile(name: str, properties: Properties) -> None:
    for role in properties["Roles"]:
        _delete("iam", "remove_role_from_instance_profile", "NoSuchEntity", InstanceProfileName=name, RoleName=role)
    _delete("iam", "delete_instance_profile", "NoSuchEntity", InstanceProfileName=name)


# Documents, queries, schedules


def _document_request(name: str, properties: Properties) -> Properties:
    content = properties["Content"]
    return {
        **_without(properties, "Content", "UpdateMethod", "Name"),
        "Name": name,
        "Content": content if isinstance(content, str) else json.dumps(content),
    }


def _create_document(logical_id: str, properties: Properties, stack_name: str) -> Made:
    name = properties.get("Name") or _name(stack_name, logical_id, 128)
    request = _document_request(name, {"DocumentType": "Command", **properties})
    _call("ssm", "create_document", request)
    return name, {}


def _update_document(name: str, old: Properties, new: Properties, stack_name: str, logical_id: str) -> Made:
    if new.get("Name", name) != name:
        return _create_document(logical_id, new, stack_name)
    request = _without(_document_request(name, new), "DocumentType", "Tags")
    if _document_request(name, old)["Content"] != request["Content"]:
        version = _call("ssm", "update_document", request)["DocumentDescription"]["DocumentVersion"]
        _call("ssm", "update_document_default_version", {"Name": name, "DocumentVersion": version})
    return name, {}


def _create_named_query(logical_id: str, properties: Properties, _stack_name: str) -> Made:
    request = {"Name": logical_id, **properties}
    query_id = _call("athena", "create_named_query", request)["NamedQueryId"]
    return query_id, {"NamedQueryId": query_id}


def _create_schedule(logical_id: str, properties: Properties, stack_name: str) -> Made:
    name = properties.get("Name") or _name(stack_name, logical_id, 64)
    made = _call("scheduler", "create_schedule", {**properties, "Name": name})
    return name, {"Arn": made["ScheduleArn"]}


def _update_schedule(name: str, _old: Properties, new: Properties, stack_name: str, logical_id: str) -> Made:
    if new.get("Name", name) != name:
        return _create_schedule(logical_id, new, stack_name)
    made = _call("scheduler", "update_schedule", {**new, "Name": name})
    return name, {"Arn": made["ScheduleArn"]}


def _delete_schedule(name: str, properties: Properties) -> None:
    group = properties.get("GroupName", "default")
    _delete("scheduler", "delete_schedule", "ResourceNotFoundException", Name=name, GroupName=group)


def _name(stack_name: str, logical_id: str, longest: int) -> str:
    from ministack.services.cloudformation.provisioners import _physical_name  # noqa: PLC0415

    return str(_physical_name(stack_name, logical_id, max_len=longest))


# Registration


@dataclass(frozen=True)
class Type:
    create: Callable[[str, Properties, str], Made]
    delete: Callable[[str, Properties], None]
    update: Callable[[str, Properties, Properties, str, str], Made] | None = None
    tags: bool = True

    def handlers(self) -> dict[str, Any]:
        update = {"update": _explained(self.update), "update_with_logical_id": True} if self.update else {}
        return {"create": _explained(self.create), "delete": _explained(self.delete), **update}


# What CloudFormation's handlers make of a service's refusal, by a word in its code.
_HANDLER_CODES = {
    "Unauthorized": "AccessDenied",
    "AccessDenied": "AccessDenied",
    "AlreadyExists": "AlreadyExists",
    "Duplicate": "AlreadyExists",
    "NotFound": "NotFound",
    "Invalid": "InvalidRequest",
}


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a service's refusal in the words of a stack event."""

    @functools.wraps(function)
    def explained(*args: Any) -> Any:
        try:
            return function(*args)
        except ClientError as error:
            said, meta = error.response["Error"], error.response["ResponseMetadata"]
            code = next((name for word, name in _HANDLER_CODES.items() if word in said["Code"]), "")
            raise ValueError(
                f'Resource handler returned message: "{said["Message"]} (Status Code: {meta["HTTPStatusCode"]}, '
                f'Request ID: {meta.get("RequestId", "")})" (RequestToken: {uuid.uuid4()}, '
                f"HandlerErrorCode: {code or 'GeneralServiceException'})"
            ) from error

    return explained


def _by(service: str, operation: str, key: str, *gone: str, many: bool = False) -> Callable[[str, Properties], None]:
    """A deletion by one call, with the physical id as one parameter."""

    def delete(physical_id: str, _properties: Properties) -> None:
        _delete(service, operation, *gone, **{key: [physical_id] if many else physical_id})

    return delete


_ingress, _egress = _rules("ingress"), _rules("egress")

TYPES: dict[str, Type] = {
    "AWS::Athena::NamedQuery": Type(
        _create_named_query,
        _by("athena", "delete_named_query", "NamedQueryId", "InvalidRequestException"),
        tags=False,
    ),
    "AWS::EC2::EIP": Type(_create_address, _delete_address),
    "AWS::EC2::FlowLog": Type(
        _create_flow_log,
        _by("ec2", "delete_flow_logs", "FlowLogIds", "InvalidFlowLogId.NotFound", many=True),
    ),
    "AWS::EC2::Instance": Type(_create_instance, _delete_instance),
    "AWS::EC2::NatGateway": Type(
        _create_nat_gateway, _by("ec2", "delete_nat_gateway", "NatGatewayId", "NatGatewayNotFound")
    ),
    "AWS::EC2::NetworkInterface": Type(
        _create_interface,
        _by("ec2", "delete_network_interface", "NetworkInterfaceId", "InvalidNetworkInterfaceID.NotFound"),
    ),
    "AWS::EC2::NetworkInterfaceAttachment": Type(
        _create_interface_attachment,
        _by("ec2", "detach_network_interface", "AttachmentId", "InvalidAttachmentID.NotFound"),
        tags=False,
    ),
    "AWS::EC2::PlacementGroup": Type(
        _create_placement_group,
        _by("ec2", "delete_placement_group", "GroupName", "InvalidPlacementGroup.Unknown"),
    ),
    "AWS::EC2::SecurityGroup": Type(
        _create_security_group, _by("ec2", "delete_security_group", "GroupId", "InvalidGroup.NotFound")
    ),
    "AWS::EC2::SecurityGroupEgress": Type(*_egress, tags=False),
    "AWS::EC2::SecurityGroupIngress": Type(*_ingress, tags=False),
    "AWS::EC2::Volume": Type(_create_volume, _by("ec2", "delete_volume", "VolumeId", "InvalidVolume.NotFound")),
    "AWS::EC2::VolumeAttachment": Type(_create_attachment, _delete_attachment, tags=False),
    "AWS::IAM::InstanceProfile": Type(_create_profile, _delete_profile, tags=False),
    "AWS::SSM::Document": Type(
        _create_document, _by("ssm", "delete_document", "Name", "InvalidDocument"), _update_document
    ),
    "AWS::Scheduler::Schedule": Type(_create_schedule, _delete_schedule, _update_schedule, tags=False),
}


def register() -> None:
    """Put our types beside ministack's, or in their place. A type without an update is replaced."""
    from ministack.services.cloudformation import provisioners  # noqa: PLC0415

    for name, made in TYPES.items():
        provisioners._RESOURCE_HANDLERS[name] = made.handlers()
        if made.tags:
            provisioners._STACK_TAG_PROPERTY[name] = ("Tags", "list")


def settle_interrupted() -> None:
    """Stacks of a restored state whose operation ended with an earlier region have failed it."""
    from ministack.services import cloudformation  # noqa: PLC0415

    for stack in cloudformation._stacks.values():
        operation, _, progress = stack["StackStatus"].rpartition("_IN_")
        if progress == "PROGRESS":
            stack["StackStatus"] = f"{operation.removesuffix('_COMPLETE_CLEANUP')}_FAILED"
            stack["StackStatusReason"] = "The local region ended during the operation"


def unfinished(deployed: Iterable[str]) -> list[str]:
    """Stacks that are neither deleted nor among those given."""
    from ministack.services import cloudformation  # noqa: PLC0415

    kept = set(deployed)
    return [
        f"stack {name} ({stack['StackStatus']})"
        for name, stack in cloudformation._stacks.items()
        if stack["StackStatus"] != "DELETE_COMPLETE" and name not in kept
    ]
