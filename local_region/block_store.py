"""EBS volumes: their records and rules. The data is with the driver of the hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_region import ebs
from local_region.ec2_protocol import Refused
from local_region.hosts.base import HostDriver, VolumeSpec
from local_region.identity import REGION
from local_region.records import Record, new_id, now, select, specified_tags, tag, untag

ZONES = tuple(f"{REGION}{letter}" for letter in "abcdef")
MULTI_ATTACH_TYPES = ("io1", "io2")
# EBS User Guide, "Attach an EBS volume to multiple EC2 instances using Multi-Attach".
MULTI_ATTACH_INSTANCES = 16
FILTERS = {
    "volume-id": "VolumeId",
    "status": "State",
    "availability-zone": "AvailabilityZone",
    "volume-type": "VolumeType",
    "size": "Size",
    "encrypted": "Encrypted",
    "multi-attach-enabled": "MultiAttachEnabled",
    "attachment.instance-id": "Attachments.InstanceId",
    "attachment.device": "Attachments.Device",
    "attachment.status": "Attachments.State",
    "attachment.delete-on-termination": "Attachments.DeleteOnTermination",
}


class Volumes:
    """All volumes. Its callers hold the lock of the records."""

    def __init__(self, driver: HostDriver) -> None:
        self.records: dict[str, Record] = {}
        self._driver = driver

    def __getitem__(self, volume_id: str) -> Record:
        try:
            return self.records[volume_id]
        except KeyError:
            raise Refused("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.") from None

    def create(self, request: Mapping[str, Any]) -> Record:
        """As CreateVolume. Refused: the type does not allow it."""
        zone = request.get("AvailabilityZone", "")
        if zone not in ZONES:
            raise Refused("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        if request.get("SnapshotId"):
            raise Refused("InvalidSnapshot.NotFound", f"The snapshot '{request['SnapshotId']}' does not exist.")
        kind = request.get("VolumeType", "gp2")
        multi_attach = request.get("MultiAttachEnabled", False)
        if multi_attach and kind not in MULTI_ATTACH_TYPES:
            raise Refused("UnsupportedOperation", f"Multi-Attach is not supported for volume type '{kind}'.")
        limits = _limits(kind, request)
        volume_id = new_id("vol")
        self._driver.create_volume(
            VolumeSpec(volume_id, request["Size"] * ebs.KIB**3, limits, zone, multi_attach=multi_attach)
        )
        record = self._record(volume_id, zone, kind, request, limits)
        tag(volume_id, specified_tags(request, "volume"))
        return record

    def create_root(self, zone: str, size_gib: int) -> Record:
        """The volume of an instance's image. A host has its machine's own disk: nothing is made of it."""
        record = self._record(new_id("vol"), zone, "gp3", {"Size": size_gib}, ebs.limits("gp3", size_gib))
        record["_root"] = True
        return record

    def _record(self, volume_id: str, zone: str, kind: str, request: Mapping[str, Any], limits: ebs.Limits) -> Record:
        self.records[volume_id] = record = {
            "VolumeId": volume_id,
            "Size": request["Size"],
            "AvailabilityZone": zone,
            "State": "available",
            "VolumeType": kind,
            "SnapshotId": "",
            "Encrypted": request.get("Encrypted", False),
            "KmsKeyId": request.get("KmsKeyId"),
            "CreateTime": now(),
            "MultiAttachEnabled": request.get("MultiAttachEnabled", False),
            "Attachments": [],
        }
        if kind not in ("st1", "sc1"):
            record["Iops"] = limits.iops
        if kind == "gp3":
            record["Throughput"] = limits.throughput_bytes_per_s // ebs.MIB
        return record

    def describe(self, request: Mapping[str, Any]) -> list[Record]:
        ids = request.get("VolumeIds") or list(self.records)
        return select([self[one] for one in ids], request, id_key="VolumeId", filters=FILTERS)

    def attach(self, record: Record, instance: Record, device: str, *, keep: bool) -> dict[str, Any]:
        """Record an attachment. Refused: another zone, in use without Multi-Attach, or by too many."""
        volume_id, instance_id = record["VolumeId"], instance["InstanceId"]
        attached = record["Attachments"]
        if record["AvailabilityZone"] != instance["Placement"]["AvailabilityZone"]:
            raise Refused(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume_id}' is not in the same availability zone as instance '{instance_id}'",
            )
        if any(one["InstanceId"] == instance_id for one in attached):
            raise Refused("VolumeInUse", f"{volume_id} is already attached to an instance")
        if attached and not record["MultiAttachEnabled"]:
            raise Refused("VolumeInUse", f"{volume_id} is already attached to an instance")
        if len(attached) >= MULTI_ATTACH_INSTANCES:
            raise Refused(
                "AttachmentLimitExceeded",
                f"{volume_id} has reached its limit of {MULTI_ATTACH_INSTANCES} attachments",
            )
        if any(one["Device"] == device for one in self.attachments(instance_id)):
            raise Refused(
                "InvalidParameterValue",
                f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
            )
        attachment = {
            "VolumeId": volume_id,
            "InstanceId": instance_id,
            "Device": device,
            "State": "attached",
            "AttachTime": now(),
            "DeleteOnTermination": not keep,
        }
        attached.append(attachment)
        record["State"] = "in-use"
        return attachment

    def attachments(self, instance_id: str) -> list[dict[str, Any]]:
        return [
            one for record in self.records.values() for one in record["Attachments"] if one["InstanceId"] == instance_id
        ]

    def data_volumes(self, instance_id: str) -> list[str]:
        """Volumes that the host of an instance has to have."""
        return [
            one["VolumeId"] for one in self.attachments(instance_id) if "_root" not in self.records[one["VolumeId"]]
        ]

    def detach(self, record: Record, instance_id: str) -> dict[str, Any]:
        for attachment in record["Attachments"]:
            if attachment["InstanceId"] == instance_id:
                record["Attachments"].remove(attachment)
                record["State"] = "in-use" if record["Attachments"] else "available"
                return dict(attachment, State="detaching")
        raise Refused("IncorrectState", f"Volume '{record['VolumeId']}' is not attached to instance '{instance_id}'.")

    def release(self, instance_id: str) -> None:
        """The instance is gone: its volumes go with it, or come free."""
        for attachment in self.attachments(instance_id):
            record = self.records[attachment["VolumeId"]]
            self.detach(record, instance_id)
            if attachment["DeleteOnTermination"] and not record["Attachments"]:
                self.delete(record)

    def delete(self, record: Record) -> None:
        if record["Attachments"]:
            users = ", ".join(one["InstanceId"] for one in record["Attachments"])
            raise Refused("VolumeInUse", f"Volume {record['VolumeId']} is currently attached to {users}")
        if "_root" not in record:
            self._driver.delete_volume(record["VolumeId"])
        del self.records[record["VolumeId"]]
        untag(record["VolumeId"])


def _limits(kind: str, request: Mapping[str, Any]) -> ebs.Limits:
    if "Size" not in request:
        raise Refused("MissingParameter", "The request must contain the parameter size or snapshotId")
    try:
        return ebs.limits(kind, request["Size"], request.get("Iops"), request.get("Throughput"))
    except ValueError as error:
        raise Refused("InvalidParameterValue", str(error)) from None
