"""Instances: their records, what a launch asks for, and what EC2 refuses of it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_region import images, instance_types
from local_region.block_store import Volumes
from local_region.ec2_protocol import Refused
from local_region.identity import ACCOUNT
from local_region.interfaces import Interfaces
from local_region.records import Record, new_id, now, select, specified_tags, tag, tags_of, untag

Request = Mapping[str, Any]

# EC2 lists a terminated instance for about an hour.
_LISTED_AFTER_TERMINATION_S = 3600
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
FILTERS = {
    "instance-id": "InstanceId",
    "instance-state-name": "State.Name",
    "instance-state-code": "State.Code",
    "instance-type": "InstanceType",
    "image-id": "ImageId",
    "availability-zone": "Placement.AvailabilityZone",
    "placement-group-name": "Placement.GroupName",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
    "private-ip-address": "PrivateIpAddress",
    "client-token": "ClientToken",
    "iam-instance-profile.arn": "IamInstanceProfile.Arn",
    "instance.group-id": "SecurityGroups.GroupId",
    "block-device-mapping.volume-id": "BlockDeviceMappings.Ebs.VolumeId",
    "network-interface.network-interface-id": "NetworkInterfaces.NetworkInterfaceId",
}


@dataclass
class Fault:
    """Launches of a type in a zone that are refused for want of capacity; empty fields match anything."""

    availability_zone: str
    instance_type: str
    count: int

    def takes(self, zone: str, kind: str) -> bool:
        return self.count > 0 and self.availability_zone in ("", zone) and self.instance_type in ("", kind)


@dataclass
class Instances:
    """All instances. Its callers hold the lock of the records."""

    volumes: Volumes
    interfaces: Interfaces
    records: dict[str, Record] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def __getitem__(self, instance_id: str) -> Record:
        if instance_id in self.records:
            return self.records[instance_id]
        if not re.fullmatch(r"i-[0-9a-f]{8,17}", instance_id):
            raise Refused("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        raise Refused("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")

    def create(self, request: Request) -> list[str]:
        """Ids of the instances made. Refused: EC2 has not enough capacity, or the request is wrong."""
        wanted = _with_template(request)
        least, most = request["MinCount"], request["MaxCount"]
        if not 1 <= least <= most:
            raise Refused("InvalidParameterValue", f"Value ({least}) for parameter minCount is invalid.")
        made: list[str] = []
        for index in range(most):
            try:
                made.append(self._create(wanted, index))
            except Refused as error:
                if error.code == "InsufficientInstanceCapacity" and len(made) >= least:
                    break
                for instance_id in made:
                    self.forget(instance_id)
                raise
        return made

    def _create(self, wanted: Request, index: int) -> str:
        kind, image = wanted.get("InstanceType", "m1.small"), wanted.get("ImageId", "")
        facts = facts_of(kind)
        root_device = _root_device(image, kind, facts)
        instance_id = new_id("i")
        first, *others = interface_requests(wanted)
        primary = self.interfaces[first["NetworkInterfaceId"]] if "NetworkInterfaceId" in first else None
        zone = _zone(primary["SubnetId"] if primary else first.get("SubnetId"))
        self._take_capacity(zone, kind)
        record: Record = {
            "InstanceId": instance_id,
            "ImageId": image,
            "InstanceType": kind,
            "State": state("pending"),
            "Placement": {
                "AvailabilityZone": zone,
                "Tenancy": "default",
                "GroupName": _placement_group(wanted.get("Placement", {}).get("GroupName", "")),
            },
            "Monitoring": {"State": "disabled"},
            "AmiLaunchIndex": index,
            "LaunchTime": now(),
            "Architecture": facts["ProcessorInfo"]["SupportedArchitectures"][0],
            "RootDeviceType": "ebs",
            "RootDeviceName": root_device,
            "VirtualizationType": "hvm",
            "Hypervisor": "xen",
            "EbsOptimized": wanted.get("EbsOptimized", False),
            "EnaSupport": True,
            "SourceDestCheck": True,
            "ClientToken": wanted.get("ClientToken", ""),
            "KeyName": wanted.get("KeyName"),
            "ProductCodes": [],
            "StateTransitionReason": "",
            "MetadataOptions": {
                "State": "applied",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 2,
                "HttpEndpoint": "enabled",
                **wanted.get("MetadataOptions", {}),
            },
            "_shutdown": wanted.get("InstanceInitiatedShutdownBehavior", "stop"),
        }
        if wanted.get("IamInstanceProfile"):
            record["IamInstanceProfile"] = profile(wanted["IamInstanceProfile"])
        self.records[instance_id] = record
        try:
            self._connect(record, [first, *others], facts)
            self._add_volumes(record, wanted)
        except Refused:
            self.forget(instance_id)
            raise
        tag(instance_id, specified_tags(wanted, "instance"))
        return instance_id

    def _connect(self, record: Record, requests: list[dict[str, Any]], facts: Record) -> None:
        if len(requests) > facts["NetworkInfo"]["MaximumNetworkInterfaces"]:
            raise Refused(
                "AttachmentLimitExceeded",
                f"Interface count {len(requests)} exceeds the limit for {record['InstanceType']}",
            )
        for index, request in enumerate(requests):
            given = request.get("NetworkInterfaceId")
            interface = self.interfaces[given] if given else self.interfaces.create(request)
            keep = not request.get("DeleteOnTermination", not given)
            self.interfaces.attach(interface, record, int(request.get("DeviceIndex", index)), keep=keep)
        primary = self.interfaces.of(record["InstanceId"])[0]
        address = primary["PrivateIpAddress"]
        record.update(
            SubnetId=primary["SubnetId"],
            VpcId=primary["VpcId"],
            PrivateIpAddress=address,
            PrivateDnsName=f"ip-{address.replace('.', '-')}.ec2.internal",
            PublicDnsName="",
            SecurityGroups=primary["Groups"],
        )

    def _add_volumes(self, record: Record, wanted: Request) -> None:
        zone = record["Placement"]["AvailabilityZone"]
        root_gib = 8
        for mapping in wanted.get("BlockDeviceMappings", []):
            asked = mapping.get("Ebs")
            if asked is None:
                continue
            if mapping["DeviceName"] in (record["RootDeviceName"], "/dev/xvda", "/dev/sda1"):
                root_gib = asked.get("VolumeSize", root_gib)
                continue
            volume = self.volumes.create(
                {
                    "AvailabilityZone": zone,
                    "Size": asked.get("VolumeSize"),
                    **{key: asked[key] for key in ("VolumeType", "Iops", "Throughput", "Encrypted") if key in asked},
                }
            )
            keep = not asked.get("DeleteOnTermination", True)
            self.volumes.attach(volume, record, mapping["DeviceName"], keep=keep)
            tag(volume["VolumeId"], specified_tags(wanted, "volume"))
        root = self.volumes.create_root(zone, root_gib)
        self.volumes.attach(root, record, record["RootDeviceName"], keep=False)
        tag(root["VolumeId"], specified_tags(wanted, "volume"))

    def forget(self, instance_id: str) -> None:
        self.interfaces.release(instance_id)
        self.volumes.release(instance_id)
        del self.records[instance_id]
        untag(instance_id)

    def _take_capacity(self, zone: str, kind: str) -> None:
        for fault in self.faults:
            if fault.takes(zone, kind):
                fault.count -= 1
                raise Refused(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested "
                    f"({zone}). Our system will be working on provisioning additional capacity.",
                    500,
                )

    def describe(self, request: Request) -> list[Record]:
        """Instances that a request names and filters, as DescribeInstances shows them."""
        self._evict()
        ids = request.get("InstanceIds") or list(self.records)
        found = [self.described(self[one]["InstanceId"]) for one in ids]
        return select(found, request, id_key="InstanceId", filters=FILTERS)

    def described(self, instance_id: str) -> Record:
        record = self.records[instance_id]
        links = self.interfaces.of(instance_id)
        return {
            **record,
            "Tags": tags_of(instance_id),
            "NetworkInterfaces": [{**link, "Ipv6Addresses": []} for link in links],
            "BlockDeviceMappings": [
                {
                    "DeviceName": one["Device"],
                    "Ebs": {
                        "VolumeId": one["VolumeId"],
                        "Status": one["State"],
                        "AttachTime": one["AttachTime"],
                        "DeleteOnTermination": one["DeleteOnTermination"],
                    },
                }
                for one in self.volumes.attachments(instance_id)
            ],
        }

    def _evict(self) -> None:
        oldest = time.monotonic() - _LISTED_AFTER_TERMINATION_S
        for instance_id, record in list(self.records.items()):
            if record.get("_terminated_at", oldest) < oldest:
                del self.records[instance_id]
                untag(instance_id)


def interface_requests(wanted: Request) -> list[dict[str, Any]]:
    """The interfaces that a launch asks for, by device index."""
    asked = wanted.get("NetworkInterfaces")
    if asked:
        return sorted(asked, key=lambda one: int(one.get("DeviceIndex", 0)))
    return [
        {
            "SubnetId": wanted.get("SubnetId"),
            "Groups": wanted.get("SecurityGroupIds"),
            "PrivateIpAddress": wanted.get("PrivateIpAddress"),
        }
    ]


def state(name: str) -> dict[str, Any]:
    return {"Code": _CODES[name], "Name": name}


def status(record: Record) -> Record:
    healthy = record["State"]["Name"] == "running"
    summary = {
        "Status": "ok" if healthy else "not-applicable",
        "Details": [{"Name": "reachability", "Status": "passed"}] if healthy else [],
    }
    return {
        "InstanceId": record["InstanceId"],
        "AvailabilityZone": record["Placement"]["AvailabilityZone"],
        "InstanceState": record["State"],
        "InstanceStatus": summary,
        "SystemStatus": summary,
    }


def facts_of(kind: str) -> Record:
    try:
        return instance_types.describe(kind)
    except KeyError:
        raise Refused("InvalidInstanceType", f"The following supplied instance types do not exist: [{kind}]") from None


def _root_device(image_id: str, kind: str, facts: Record) -> str:
    """The root device of an image. Refused: no id, or an image of another architecture."""
    if not re.fullmatch(r"ami-[0-9a-f]{8,17}", image_id):
        raise Refused("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
    image = images.find(image_id)
    if image is None:
        return "/dev/xvda"
    architectures = facts["ProcessorInfo"]["SupportedArchitectures"]
    if image["Architecture"] not in architectures:
        raise Refused(
            "InvalidParameterValue",
            f"The architecture '{','.join(architectures)}' of the specified instance type '{kind}' does not match "
            f"the architecture '{image['Architecture']}' of the specified AMI",
        )
    return str(image["RootDeviceName"])


def _zone(subnet_id: str | None) -> str:
    from ministack.services import ec2  # noqa: PLC0415

    subnet = ec2._subnets.get(subnet_id or ec2._DEFAULT_SUBNET_ID)
    if subnet is None:
        raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    return str(subnet["AvailabilityZone"])


def _placement_group(name: str) -> str:
    from ministack.services import ec2  # noqa: PLC0415

    if name and name not in ec2._placement_groups:
        raise Refused("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
    return name


def profile(asked: Mapping[str, str]) -> Record:
    from ministack.services import iam  # noqa: PLC0415

    found = iam._lookup_instance_profile(name=asked.get("Name", ""), arn=asked.get("Arn", ""))
    if not found:
        raise Refused(
            "InvalidParameterValue",
            f"Value ({asked.get('Name') or asked.get('Arn')}) for parameter iamInstanceProfile is invalid. "
            "Invalid IAM Instance Profile name",
        )
    roles = [f"arn:aws:iam::{ACCOUNT}:role/{_role_name(role)}" for role in found.get("Roles", [])]
    return {"Arn": found["Arn"], "Id": found["InstanceProfileId"], "_roles": roles}


def _role_name(role: str | Mapping[str, Any]) -> str:
    return role if isinstance(role, str) else str(role["RoleName"])


def _with_template(request: Request) -> Request:
    """The request over what its launch template says; lists are replaced, not merged."""
    template = request.get("LaunchTemplate")
    if template is None:
        return request
    from ministack.services import ec2  # noqa: PLC0415

    data, _record, error = ec2._resolve_launch_template_data(template)
    if error:
        raise Refused("InvalidLaunchTemplateId.NotFound", f"The launch template {template} does not exist")
    return {**data, **request}
