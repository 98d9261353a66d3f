"""Elastic network interfaces: an address each, out of its subnet."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
from collections.abc import Mapping
from typing import Any

from local_region.ec2_protocol import Refused
from local_region.identity import ACCOUNT
from local_region.records import Record, new_id, now, select, specified_tags, tag, untag

# The first four addresses of a subnet and its last are AWS's.
_RESERVED_FIRST = 4
FILTERS = {
    "network-interface-id": "NetworkInterfaceId",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
    "status": "Status",
    "private-ip-address": "PrivateIpAddress",
    "addresses.private-ip-address": "PrivateIpAddress",
    "availability-zone": "AvailabilityZone",
    "group-id": "Groups.GroupId",
    "description": "Description",
    "attachment.instance-id": "Attachment.InstanceId",
    "attachment.attachment-id": "Attachment.AttachmentId",
    "attachment.device-index": "Attachment.DeviceIndex",
    "attachment.status": "Attachment.Status",
}


class Interfaces:
    """All network interfaces. Its callers hold the lock of the records."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def __getitem__(self, interface_id: str) -> Record:
        try:
            return self.records[interface_id]
        except KeyError:
            raise Refused(
                "InvalidNetworkInterfaceID.NotFound", f"The networkInterface ID '{interface_id}' does not exist"
            ) from None

    def create(self, request: Mapping[str, Any]) -> Record:
        subnet = _subnet(request.get("SubnetId"))
        groups = groups_in(request.get("Groups"), subnet["VpcId"])
        address = self._address(subnet, request.get("PrivateIpAddress"))
        interface_id = new_id("eni")
        mac = secrets.token_bytes(5)
        self.records[interface_id] = record = {
            "NetworkInterfaceId": interface_id,
            "SubnetId": subnet["SubnetId"],
            "VpcId": subnet["VpcId"],
            "AvailabilityZone": subnet["AvailabilityZone"],
            "Description": request.get("Description", ""),
            "OwnerId": ACCOUNT,
            "RequesterManaged": False,
            "Status": "available",
            "InterfaceType": "interface",
            "MacAddress": ":".join(["02", *(f"{byte:02x}" for byte in mac)]),
            "PrivateIpAddress": address,
            "PrivateIpAddresses": [{"PrivateIpAddress": address, "Primary": True}],
            "SourceDestCheck": True,
            "Groups": groups,
            "_prefix_length": ipaddress.ip_network(subnet["CidrBlock"]).prefixlen,
        }
        tag(interface_id, specified_tags(request, "network-interface"))
        return record

    def _address(self, subnet: Record, wanted: str | None) -> str:
        network = ipaddress.ip_network(subnet["CidrBlock"])
        used = {record["PrivateIpAddress"] for record in self.records.values()}
        if wanted:
            if ipaddress.ip_address(wanted) not in network:
                raise Refused("InvalidParameterValue", "Address does not fall within the subnet's address range")
            if wanted in used:
                raise Refused("InvalidIPAddress.InUse", f"Address {wanted} is in use.")
            return wanted
        free = (str(address) for address in itertools.islice(network.hosts(), _RESERVED_FIRST - 1, None))
        try:
            return next(address for address in free if address not in used)
        except StopIteration:
            raise Refused(
                "InsufficientFreeAddressesInSubnet",
                f"There are not enough free addresses in subnet '{subnet['SubnetId']}' to satisfy the request.",
            ) from None

    def describe(self, request: Mapping[str, Any]) -> list[Record]:
        ids = request.get("NetworkInterfaceIds") or list(self.records)
        found = select([self[one] for one in ids], request, id_key="NetworkInterfaceId", filters=FILTERS)
        return [{**record, "TagSet": record["Tags"]} for record in found]

    def attach(self, record: Record, instance: Record, index: int, *, keep: bool) -> Record:
        """Attach to an instance at a device index; `keep` lets the interface outlive the instance."""
        if record["Status"] != "available":
            raise Refused(
                "InvalidNetworkInterface.InUse",
                f"Interface: [{record['NetworkInterfaceId']}] in use.",
            )
        if record["AvailabilityZone"] != instance["Placement"]["AvailabilityZone"]:
            raise Refused("InvalidParameterCombination", "The networkInterface and the instance are in different zones")
        if any(one["Attachment"]["DeviceIndex"] == index for one in self.of(instance["InstanceId"])):
            raise Refused(
                "InvalidParameterValue",
                f"Instance '{instance['InstanceId']}' already has an interface attached at device index '{index}'.",
            )
        record["Status"] = "in-use"
        record["Attachment"] = {
            "AttachmentId": new_id("eni-attach"),
            "InstanceId": instance["InstanceId"],
            "InstanceOwnerId": ACCOUNT,
            "DeviceIndex": index,
            "NetworkCardIndex": 0,
            "Status": "attached",
            "AttachTime": now(),
            "DeleteOnTermination": not keep,
        }
        return record

    def by_attachment(self, attachment_id: str) -> Record:
        for record in self.records.values():
            if record.get("Attachment", {}).get("AttachmentId") == attachment_id:
                return record
        raise Refused("InvalidAttachmentID.NotFound", f"The attachment '{attachment_id}' does not exist.")

    def detach(self, record: Record) -> None:
        record.pop("Attachment", None)
        record["Status"] = "available"

    def of(self, instance_id: str) -> list[Record]:
        """Interfaces of an instance, by device index."""
        found = [
            record for record in self.records.values() if record.get("Attachment", {}).get("InstanceId") == instance_id
        ]
        return sorted(found, key=lambda record: int(record["Attachment"]["DeviceIndex"]))

    def release(self, instance_id: str) -> None:
        """The instance is gone: its interfaces go with it, or come free."""
        for record in self.of(instance_id):
            keep = not record["Attachment"]["DeleteOnTermination"]
            self.detach(record)
            if not keep:
                self.delete(record)

    def delete(self, record: Record) -> None:
        if record["Status"] != "available":
            raise Refused(
                "InvalidParameterValue",
                f"Network interface '{record['NetworkInterfaceId']}' is currently in use.",
            )
        del self.records[record["NetworkInterfaceId"]]
        untag(record["NetworkInterfaceId"])

    def using(self, key: str, value: str) -> list[str]:
        """Interfaces that stand in the way of deleting a security group, a subnet or a VPC."""
        if key == "GroupId":
            return [
                name
                for name, record in self.records.items()
                if any(group["GroupId"] == value for group in record["Groups"])
            ]
        return [name for name, record in self.records.items() if record[key] == value]


def _subnet(subnet_id: str | None) -> Record:
    from ministack.services import ec2  # noqa: PLC0415

    subnet: Record | None = ec2._subnets.get(subnet_id or ec2._DEFAULT_SUBNET_ID)
    if subnet is None:
        raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    return subnet


def groups_in(group_ids: list[str] | None, vpc_id: str) -> list[dict[str, str]]:
    """Security groups by id, which must be of the VPC; its default group when none is named."""
    from ministack.services import ec2  # noqa: PLC0415

    if not group_ids:
        groups = ec2._security_groups.values()
        group_ids = [g["GroupId"] for g in groups if g["VpcId"] == vpc_id and g["GroupName"] == "default"][:1]
    named = []
    for group_id in group_ids:
        group = ec2._security_groups.get(group_id)
        if group is None or group["VpcId"] != vpc_id:
            raise Refused("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        named.append({"GroupId": group_id, "GroupName": group["GroupName"]})
    return named
