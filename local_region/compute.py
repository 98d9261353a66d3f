"""EC2's instances, volumes and interfaces, and the hosts that they are.

VPCs, subnets, groups, placement groups and tags stay with ministack. An instance is `pending` until its host
runs commands; hosts start in parallel, outside the requests that ask for them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from local_region import authorization, images, instance_types
from local_region.authorization import Resource
from local_region.block_store import Volumes
from local_region.ec2_protocol import Answer, Refused, decode, encode, refusal
from local_region.hosts.base import Host, HostDriver, HostSpec, Interface
from local_region.identity import ACCOUNT
from local_region.interfaces import Interfaces
from local_region.records import (
    Record,
    Tokens,
    new_id,
    now,
    select,
    specified_tags,
    tag,
    tag_map,
    tags_of,
    untag,
)

log = logging.getLogger("local_region.compute")

Request = Mapping[str, Any]
Handler = Callable[..., Awaitable[Answer]]

# EC2 lists a terminated instance for about an hour.
_LISTED_AFTER_TERMINATION_S = 3600
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_ENDING = ("shutting-down", "terminated")
# The first interface of a Nitro instance is ens5 in the distributions that Volumetry uses.
_FIRST_INTERFACE = 5
# What ministack would do on records that are not ours.
_REFUSED = frozenset(
    "CreateFleet CreateSnapshot CreateSnapshots ModifyVolume RequestSpotInstances RegisterImage CreateImage "
    "AssociateIamInstanceProfile".split()
)
_FILTERS = {
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
class Compute:
    driver: HostDriver
    instances: dict[str, Record] = field(default_factory=dict)
    interfaces: Interfaces = field(default_factory=Interfaces)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _faults: list[Fault] = field(default_factory=list)
    _tokens: Tokens = field(default_factory=Tokens)
    changed: threading.Condition = field(default_factory=threading.Condition)
    volumes: Volumes = field(init=False)

    def __post_init__(self) -> None:
        self.volumes = Volumes(self.driver)

    # Requests

    def handler(self, original: Handler) -> Handler:
        """EC2's handler: our operations, then ministack's."""

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
                answer = OPERATIONS[action](self, request)
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
            authorization.authorize(headers, f"ec2:{action}", RESOURCES[action](self, request))
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
        profile = request.get("IamInstanceProfile")
        for role in _profile(profile)["_roles"] if profile else []:
            authorization.authorize_pass_role(headers, role, "ec2.amazonaws.com")

    def _guard(self, action: str, request: Request) -> None:
        """What EC2 refuses to delete while something uses it; ministack cannot know."""
        if action not in _GUARDED:
            return
        key = _GUARDED[action]
        with self.changed:
            users = self.interfaces.using(key, request.get(key, "")) if key != "GroupName" else self._members(request)
        if users:
            code = "InvalidPlacementGroup.InUse" if key == "GroupName" else "DependencyViolation"
            raise Refused(code, f"resource {request.get(key)} has a dependent object: {', '.join(users)}")

    def _members(self, request: Request) -> list[str]:
        """Instances in a placement group."""
        return [
            name
            for name, record in self.instances.items()
            if record["Placement"]["GroupName"] == request["GroupName"] and record["State"]["Name"] != "terminated"
        ]

    # Instances

    def run_instances(self, request: Request) -> Record:
        with self.changed:
            made = self._tokens.recall("RunInstances", request)
            if made is None:
                wanted = _with_template(request)
                least, most = request["MinCount"], request["MaxCount"]
                if not 1 <= least <= most:
                    raise Refused("InvalidParameterValue", f"Value ({least}) for parameter minCount is invalid.")
                made = {
                    "ReservationId": new_id("r"),
                    "OwnerId": ACCOUNT,
                    "Groups": [],
                    "_ids": self._create_all(wanted, least, most),
                }
                self._tokens.remember("RunInstances", request, made)
                for instance_id in made["_ids"]:
                    self._start(instance_id)
            return {**made, "Instances": [self._described(one) for one in made["_ids"]]}

    def _create_all(self, wanted: Request, least: int, most: int) -> list[str]:
        """Ids of the instances made. Refused: EC2 has not enough capacity, or the request is wrong."""
        made: list[str] = []
        for index in range(most):
            try:
                made.append(self._create(wanted, index))
            except Refused as error:
                if error.code == "InsufficientInstanceCapacity" and len(made) >= least:
                    break
                for instance_id in made:
                    self._forget(instance_id)
                raise
        return made

    def _create(self, wanted: Request, index: int) -> str:
        kind, image = wanted.get("InstanceType", "m1.small"), wanted.get("ImageId", "")
        facts = _facts(kind)
        root_device = _root_device(image, kind, facts)
        instance_id = new_id("i")
        first, *others = self._interface_requests(wanted)
        primary = self.interfaces[first["NetworkInterfaceId"]] if "NetworkInterfaceId" in first else None
        zone = _zone(primary["SubnetId"] if primary else first.get("SubnetId"))
        self._take_capacity(zone, kind)
        record: Record = {
            "InstanceId": instance_id,
            "ImageId": image,
            "InstanceType": kind,
            "State": _state("pending"),
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
            record["IamInstanceProfile"] = _profile(wanted["IamInstanceProfile"])
        self.instances[instance_id] = record
        try:
            self._connect(record, [first, *others], facts)
            self._add_volumes(record, wanted)
        except Refused:
            self._forget(instance_id)
            raise
        tag(instance_id, specified_tags(wanted, "instance"))
        return instance_id

    def _interface_requests(self, wanted: Request) -> list[dict[str, Any]]:
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

    def _forget(self, instance_id: str) -> None:
        self.interfaces.release(instance_id)
        self.volumes.release(instance_id)
        del self.instances[instance_id]
        untag(instance_id)

    def _take_capacity(self, zone: str, kind: str) -> None:
        for fault in self._faults:
            if fault.takes(zone, kind):
                fault.count -= 1
                raise Refused(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested "
                    f"({zone}). Our system will be working on provisioning additional capacity.",
                    500,
                )

    def describe_instances(self, request: Request) -> Record:
        with self.changed:
            self._evict()
            described = [self._described(one) for one in self._ids(request)]
        found = select(described, request, id_key="InstanceId", filters=_FILTERS)
        return {
            "Reservations": [
                {
                    "ReservationId": f"r-{record['InstanceId'][2:]}",
                    "OwnerId": ACCOUNT,
                    "Groups": [],
                    "Instances": [record],
                }
                for record in found
            ]
        }

    def describe_instance_status(self, request: Request) -> Record:
        everything = request.get("IncludeAllInstances", False)
        with self.changed:
            described = [self._described(one) for one in self._ids(request)]
        found = select(described, request, id_key="InstanceId", filters=_FILTERS)
        shown = [record for record in found if everything or record["State"]["Name"] == "running"]
        return {"InstanceStatuses": [_status(record) for record in shown]}

    def describe_instance_types(self, request: Request) -> Record:
        names = request.get("InstanceTypes") or instance_types.names()
        return {"InstanceTypes": [_facts(name) for name in names]}

    def describe_instance_type_offerings(self, request: Request) -> Record:
        from local_region.block_store import ZONES  # noqa: PLC0415

        wanted = {one["Name"]: one["Values"] for one in request.get("Filters", [])}
        kind = request.get("LocationType", "region")
        places = ZONES if kind == "availability-zone" else ("us-east-1",)
        return {
            "InstanceTypeOfferings": [
                {"InstanceType": name, "LocationType": kind, "Location": place}
                for name in wanted.get("instance-type", instance_types.names())
                for place in places
                if place in wanted.get("location", places) and name in instance_types.names()
            ]
        }

    def describe_images(self, request: Request) -> Record | None:
        found = [images.find(one) for one in request.get("ImageIds", [])]
        return {"Images": found} if found and all(found) else None

    def _ids(self, request: Request) -> list[str]:
        ids: list[str] = request.get("InstanceIds") or list(self.instances)
        for instance_id in ids:
            self.instance(instance_id)
        return ids

    def instance(self, instance_id: str) -> Record:
        if instance_id in self.instances:
            return self.instances[instance_id]
        if not re.fullmatch(r"i-[0-9a-f]{8,17}", instance_id):
            raise Refused("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
        raise Refused("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")

    def _described(self, instance_id: str) -> Record:
        record = self.instances[instance_id]
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
        for instance_id, record in list(self.instances.items()):
            if record.get("_terminated_at", oldest) < oldest:
                del self.instances[instance_id]
                untag(instance_id)

    # Life of hosts

    def _start(self, instance_id: str) -> None:
        threading.Thread(target=self._launch, args=(instance_id,), name=instance_id, daemon=True).start()

    def _launch(self, instance_id: str) -> None:
        record = self.instances[instance_id]
        try:
            host = self.driver.launch(self._spec(record), on_death=self._on_death)
            self._hosts[instance_id] = host
            for volume_id in self.volumes.data_volumes(instance_id):
                host.attach(volume_id)
        except Exception as error:
            log.exception("%s could not start", instance_id)
            self._end(instance_id, "Server.InternalError", f"Server.InternalError: {error}")
            return
        with self.changed:
            if record["State"]["Name"] == "pending":
                record["State"] = _state("running")
            self.changed.notify_all()

    def _spec(self, record: Record) -> HostSpec:
        links = self.interfaces.of(record["InstanceId"])
        return HostSpec(
            record["InstanceId"],
            record["InstanceType"],
            record["Placement"]["AvailabilityZone"],
            tuple(
                Interface(
                    f"ens{_FIRST_INTERFACE + int(link['Attachment']['DeviceIndex'])}",
                    link["PrivateIpAddress"],
                    link["_prefix_length"],
                    rate_bits_per_s=instance_types.rate_bits_per_s(record["InstanceType"]),
                )
                for link in links
            ),
        )

    def _on_death(self, instance_id: str) -> None:
        log.warning("the host of %s died", instance_id)
        self._end(instance_id, "Server.InternalError", "Server.InternalError: the host was lost")

    def kill(self, instance_id: str) -> None:
        """Lose a host, as a failure of its machine would."""
        self.instance(instance_id)
        self._on_death(instance_id)

    def _end(self, instance_id: str, code: str, message: str) -> None:
        """Stop the host, then give back what the instance held."""
        record = self.instances[instance_id]
        with self.changed:
            if record["State"]["Name"] == "terminated" or record.get("_ending"):
                return
            record["_ending"] = True
            record["State"] = _state("shutting-down")
            record["StateReason"] = {"Code": code, "Message": message}
            stamp = now().strftime("%Y-%m-%d %H:%M:%S GMT")
            record["StateTransitionReason"] = f"User initiated ({stamp})" if code.startswith("Client.User") else message
        host = self._hosts.pop(instance_id, None)
        if host:
            host.stop()
        with self.changed:
            self.volumes.release(instance_id)
            self.interfaces.release(instance_id)
            record["State"] = _state("terminated")
            record["_terminated_at"] = time.monotonic()
            self.changed.notify_all()

    def terminate_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instance(one)["State"] for one in request["InstanceIds"]}
        for instance_id, state in before.items():
            if state["Name"] not in _ENDING:
                self.instances[instance_id]["State"] = _state("shutting-down")
                threading.Thread(target=self._terminate, args=(instance_id,), daemon=True).start()
        return {"TerminatingInstances": self._changes(before)}

    def _terminate(self, instance_id: str) -> None:
        # A launch under way cannot be broken off: its host is stopped when it is there.
        self._wait_for_host(instance_id)
        self._end(instance_id, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")

    def _wait_for_host(self, instance_id: str) -> None:
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    instance_id in self._hosts
                    or self.instances[instance_id]["State"]["Name"] == "terminated"
                    or self.instances[instance_id].get("_stopped")
                ),
                timeout=300,
            )

    def _changes(self, before: Mapping[str, Record]) -> list[Record]:
        return [
            {
                "InstanceId": instance_id,
                "PreviousState": state,
                "CurrentState": self.instances[instance_id]["State"],
            }
            for instance_id, state in before.items()
        ]

    def stop_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instance(one)["State"] for one in request["InstanceIds"]}
            for instance_id, state in before.items():
                if state["Name"] not in ("running", "stopped"):
                    raise Refused(
                        "IncorrectInstanceState",
                        f"The instance '{instance_id}' is not in a state from which it can be stopped.",
                    )
        for instance_id, state in before.items():
            if state["Name"] == "running":
                self.instances[instance_id]["State"] = _state("stopping")
                threading.Thread(target=self._halt, args=(instance_id,), daemon=True).start()
        return {"StoppingInstances": self._changes(before)}

    def _halt(self, instance_id: str) -> None:
        host = self._hosts.pop(instance_id, None)
        if host:
            host.stop()
        with self.changed:
            self.instances[instance_id].update(State=_state("stopped"), _stopped=True)
            self.changed.notify_all()

    def start_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instance(one)["State"] for one in request["InstanceIds"]}
            for instance_id, state in before.items():
                if state["Name"] not in ("running", "stopped"):
                    raise Refused(
                        "IncorrectInstanceState",
                        f"The instance '{instance_id}' is not in a state from which it can be started.",
                    )
                if state["Name"] == "stopped":
                    self.instances[instance_id].update(State=_state("pending"), _stopped=False)
                    self._start(instance_id)
        return {"StartingInstances": self._changes(before)}

    def host(self, instance_id: str) -> Host | None:
        """The host of a running instance."""
        record = self.instances.get(instance_id)
        return self._hosts.get(instance_id) if record and record["State"]["Name"] == "running" else None

    # Volumes and interfaces

    def create_volume(self, request: Request) -> Record:
        with self.changed:
            made: Record | None = self._tokens.recall("CreateVolume", request)
            if made is None:
                made = self.volumes.create(request)
                self._tokens.remember("CreateVolume", request, made)
            return {**made, "State": "creating", "Tags": tags_of(made["VolumeId"])}

    def delete_volume(self, request: Request) -> Record:
        with self.changed:
            self.volumes.delete(self.volumes[request["VolumeId"]])
        return {}

    def describe_volumes(self, request: Request) -> Record:
        with self.changed:
            return {"Volumes": self.volumes.describe(request)}

    def attach_volume(self, request: Request) -> Record:
        with self.changed:
            volume = self.volumes[request["VolumeId"]]
            instance = self.instance(request["InstanceId"])
            if instance["State"]["Name"] not in ("running", "stopped"):
                raise Refused("IncorrectState", f"Instance '{request['InstanceId']}' is not 'running'.")
            attachment = self.volumes.attach(volume, instance, request["Device"], keep=True)
            host = self.host(request["InstanceId"])
        if host:
            try:
                host.attach(request["VolumeId"])
            except Exception as error:
                with self.changed:
                    self.volumes.detach(volume, request["InstanceId"])
                raise Refused("InternalError", str(error), 500) from error
        return {**attachment, "State": "attaching"}

    def detach_volume(self, request: Request) -> Record:
        volume_id = request["VolumeId"]
        with self.changed:
            volume = self.volumes[volume_id]
            users = [one["InstanceId"] for one in volume["Attachments"]]
            instance_id = request.get("InstanceId") or (users[0] if len(users) == 1 else None)
            if instance_id is None:
                raise Refused("IncorrectState", f"Volume '{volume_id}' is in the 'available' state.")
            host = self.host(instance_id)
            if host and instance_id in users:
                host.detach(volume_id)
            return self.volumes.detach(volume, instance_id)

    def create_network_interface(self, request: Request) -> Record:
        with self.changed:
            made = self._tokens.recall("CreateNetworkInterface", request)
            if made is None:
                made = self.interfaces.create(request)
                self._tokens.remember("CreateNetworkInterface", request, made)
            return {"NetworkInterface": {**made, "TagSet": tags_of(made["NetworkInterfaceId"])}}

    def delete_network_interface(self, request: Request) -> Record:
        with self.changed:
            self.interfaces.delete(self.interfaces[request["NetworkInterfaceId"]])
        return {}

    def describe_network_interfaces(self, request: Request) -> Record:
        with self.changed:
            return {"NetworkInterfaces": self.interfaces.describe(request)}

    def attach_network_interface(self, request: Request) -> Record:
        with self.changed:
            instance = self.instance(request["InstanceId"])
            if instance["State"]["Name"] not in ("stopped",):
                raise Refused(
                    "UnsupportedOperation",
                    "The local region attaches interfaces at launch, or to a stopped instance.",
                )
            interface = self.interfaces[request["NetworkInterfaceId"]]
            attached = self.interfaces.attach(interface, instance, request["DeviceIndex"], keep=True)
            return {"AttachmentId": attached["Attachment"]["AttachmentId"]}

    def detach_network_interface(self, request: Request) -> Record:
        with self.changed:
            interface = self.interfaces.by_attachment(request["AttachmentId"])
            instance = self.instances.get(interface["Attachment"]["InstanceId"])
            if instance and instance["State"]["Name"] not in ("stopped", *_ENDING):
                raise Refused("OperationNotPermitted", "The instance runs; the local region cannot unplug it.")
            self.interfaces.detach(interface)
        return {}

    # Administration

    def set_faults(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Faults for tests; ValueError names the key that is not known."""
        unknown = set(wanted) - {"insufficient_capacity", "lost_host", "link", "partition"}
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
        if capacity := wanted.get("insufficient_capacity"):
            self._faults.append(
                Fault(
                    capacity.get("availability_zone", ""),
                    capacity.get("instance_type", ""),
                    int(capacity.get("count", 1)),
                )
            )
        if instance_id := wanted.get("lost_host"):
            self.kill(instance_id)
        if link := wanted.get("link"):
            self.driver.set_link(link["instance_id"], link["interface"], up=link["up"])  # type: ignore[attr-defined]
        if cut := wanted.get("partition"):
            self.driver.set_partition(cut["one"], cut["other"], cut=cut["cut"])  # type: ignore[attr-defined]
        return {}

    def leftovers(self) -> list[str]:
        with self.changed:
            found = [
                f"instance {name} ({record['State']['Name']})"
                for name, record in self.instances.items()
                if record["State"]["Name"] != "terminated"
            ]
            found += [f"volume {name}" for name in self.volumes.records]
            found += [f"network interface {name}" for name in self.interfaces.records]
        return found

    def close(self) -> None:
        """Pull every plug; the driver forgets the volumes."""
        for instance_id in list(self._hosts):
            self._end(instance_id, "Server.InternalError", "Server.InternalError: the local region stopped")
        self.driver.close()
        self.volumes.records.clear()
        self.interfaces.records.clear()


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


def _run_resources(compute: Compute, request: Request) -> Iterable[Resource]:
    yield Resource(f"arn:aws:ec2:us-east-1::image/{request.get('ImageId', '*')}")
    for kind in ("instance", "network-interface", "volume"):
        yield _resource(kind, "*", request)
    for one in compute._interface_requests(request):
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


def _state(name: str) -> dict[str, Any]:
    return {"Code": _CODES[name], "Name": name}


def _status(record: Record) -> Record:
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


def _facts(kind: str) -> Record:
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


def _profile(asked: Mapping[str, str]) -> Record:
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
