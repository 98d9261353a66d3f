"""EC2's instances, volumes and interfaces, and the hosts that they are.

VPCs, subnets, groups, placement groups and tags stay with ministack. An instance is `pending` until its host
runs commands; hosts start in parallel, outside the requests that ask for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_region import images, instance_types
from local_region.block_store import ZONES, Volumes
from local_region.ec2_protocol import Refused
from local_region.hosts.base import Host, HostDriver, HostSpec, Interface
from local_region.identity import ACCOUNT, REGION
from local_region.instances import Fault, Instances, facts_of, state, status
from local_region.interfaces import Interfaces
from local_region.records import Record, Tokens, new_id, now, tags_of

log = logging.getLogger("local_region.compute")

Request = Mapping[str, Any]

_ENDING = ("shutting-down", "terminated")
# The first interface of a Nitro instance is ens5 in the distributions that Volumetry uses.
_FIRST_INTERFACE = 5
_LONGEST_LAUNCH_S = 900


@dataclass
class Compute:
    driver: HostDriver
    interfaces: Interfaces = field(default_factory=Interfaces)
    volumes: Volumes = field(init=False)
    instances: Instances = field(init=False)
    # Guards the records, and is notified when an instance changes its state.
    changed: threading.Condition = field(default_factory=threading.Condition)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _tokens: Tokens = field(default_factory=Tokens)

    def __post_init__(self) -> None:
        self.volumes = Volumes(self.driver)
        self.instances = Instances(self.volumes, self.interfaces)

    # Instances

    def run_instances(self, request: Request) -> Record:
        with self.changed:
            made: Record | None = self._tokens.recall("RunInstances", request)
            if made is None:
                ids = self.instances.create(request)
                made = {"ReservationId": new_id("r"), "OwnerId": ACCOUNT, "Groups": [], "_ids": ids}
                self._tokens.remember("RunInstances", request, made)
                for instance_id in ids:
                    self._start(instance_id)
            return {**made, "Instances": [self.instances.described(one) for one in made["_ids"]]}

    def describe_instances(self, request: Request) -> Record:
        with self.changed:
            found = self.instances.describe(request)
        return {
            "Reservations": [
                {"ReservationId": f"r-{one['InstanceId'][2:]}", "OwnerId": ACCOUNT, "Groups": [], "Instances": [one]}
                for one in found
            ]
        }

    def describe_instance_status(self, request: Request) -> Record:
        with self.changed:
            found = self.instances.describe(request)
        everything = request.get("IncludeAllInstances", False)
        return {"InstanceStatuses": [status(one) for one in found if everything or one["State"]["Name"] == "running"]}

    def describe_instance_types(self, request: Request) -> Record:
        names = request.get("InstanceTypes") or instance_types.names()
        return {"InstanceTypes": [facts_of(name) for name in names]}

    def describe_instance_type_offerings(self, request: Request) -> Record:
        wanted = {one["Name"]: one["Values"] for one in request.get("Filters", [])}
        kind = request.get("LocationType", "region")
        places = ZONES if kind == "availability-zone" else (REGION,)
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
                record["State"] = state("running")
            self.changed.notify_all()

    def _spec(self, record: Record) -> HostSpec:
        links = self.interfaces.of(record["InstanceId"])
        return HostSpec(
            record["InstanceId"],
            record["InstanceType"],
            record["Placement"]["AvailabilityZone"],
            tuple(_interface(link, record["InstanceType"]) for link in links),
        )

    def _on_death(self, instance_id: str) -> None:
        log.warning("the host of %s died", instance_id)
        self._end(instance_id, "Server.InternalError", "Server.InternalError: the host was lost")

    def kill(self, instance_id: str) -> None:
        """Lose a host, as a failure of its machine would."""
        self.instances[instance_id]
        self._on_death(instance_id)

    def _end(self, instance_id: str, code: str, message: str) -> None:
        """Stop the host, then give back what the instance held."""
        record = self.instances[instance_id]
        with self.changed:
            if record["State"]["Name"] == "terminated" or record.get("_ending"):
                return
            record["_ending"] = True
            record["State"] = state("shutting-down")
            record["StateReason"] = {"Code": code, "Message": message}
            stamp = now().strftime("%Y-%m-%d %H:%M:%S GMT")
            record["StateTransitionReason"] = f"User initiated ({stamp})" if code.startswith("Client.User") else message
        host = self._hosts.pop(instance_id, None)
        if host:
            host.stop()
        with self.changed:
            self.volumes.release(instance_id)
            self.interfaces.release(instance_id)
            record["State"] = state("terminated")
            record["_terminated_at"] = time.monotonic()
            self.changed.notify_all()

    def terminate_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instances[one]["State"] for one in request["InstanceIds"]}
        for instance_id, earlier in before.items():
            if earlier["Name"] not in _ENDING:
                self.instances[instance_id]["State"] = state("shutting-down")
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
                timeout=_LONGEST_LAUNCH_S,
            )

    def _changes(self, before: Mapping[str, Record]) -> list[Record]:
        return [
            {
                "InstanceId": instance_id,
                "PreviousState": earlier,
                "CurrentState": self.instances[instance_id]["State"],
            }
            for instance_id, earlier in before.items()
        ]

    def stop_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instances[one]["State"] for one in request["InstanceIds"]}
            for instance_id, earlier in before.items():
                if earlier["Name"] not in ("running", "stopped"):
                    raise Refused(
                        "IncorrectInstanceState",
                        f"The instance '{instance_id}' is not in a state from which it can be stopped.",
                    )
        for instance_id, earlier in before.items():
            if earlier["Name"] == "running":
                self.instances[instance_id]["State"] = state("stopping")
                threading.Thread(target=self._halt, args=(instance_id,), daemon=True).start()
        return {"StoppingInstances": self._changes(before)}

    def _halt(self, instance_id: str) -> None:
        host = self._hosts.pop(instance_id, None)
        if host:
            host.stop()
        with self.changed:
            self.instances[instance_id].update(State=state("stopped"), _stopped=True)
            self.changed.notify_all()

    def start_instances(self, request: Request) -> Record:
        with self.changed:
            before = {one: self.instances[one]["State"] for one in request["InstanceIds"]}
            for instance_id, earlier in before.items():
                if earlier["Name"] not in ("running", "stopped"):
                    raise Refused(
                        "IncorrectInstanceState",
                        f"The instance '{instance_id}' is not in a state from which it can be started.",
                    )
                if earlier["Name"] == "stopped":
                    self.instances[instance_id].update(State=state("pending"), _stopped=False)
                    self._start(instance_id)
        return {"StartingInstances": self._changes(before)}

    def host(self, instance_id: str) -> Host | None:
        """The host of a running instance."""
        record = self.instances.records.get(instance_id)
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

    def _that_takes_devices(self, instance_id: str) -> Record:
        instance = self.instances[instance_id]
        if instance["State"]["Name"] not in ("running", "stopped"):
            raise Refused("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
        return instance

    def attach_volume(self, request: Request) -> Record:
        with self.changed:
            volume = self.volumes[request["VolumeId"]]
            instance = self._that_takes_devices(request["InstanceId"])
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
            instance = self._that_takes_devices(request["InstanceId"])
            interface = self.interfaces[request["NetworkInterfaceId"]]
            attached = self.interfaces.attach(interface, instance, request["DeviceIndex"], keep=True)
            host = self.host(request["InstanceId"])
        if host:
            try:
                host.plug(_interface(attached, instance["InstanceType"]))
            except Exception as error:
                with self.changed:
                    self.interfaces.detach(interface)
                raise Refused("InternalError", str(error), 500) from error
        return {"AttachmentId": attached["Attachment"]["AttachmentId"]}

    def detach_network_interface(self, request: Request) -> Record:
        with self.changed:
            interface = self.interfaces.by_attachment(request["AttachmentId"])
            if interface["Attachment"]["DeviceIndex"] == 0:
                raise Refused("OperationNotPermitted", "The network interface at device index 0 cannot be detached.")
            if host := self.host(interface["Attachment"]["InstanceId"]):
                host.unplug(_link_name(interface))
            self.interfaces.detach(interface)
        return {}

    def users(self, key: str, value: str) -> list[str]:
        """What stands in the way of deleting the group, subnet, VPC or placement group that `key` names."""
        with self.changed:
            if key != "GroupName":
                return self.interfaces.using(key, value)
            return [
                name
                for name, record in self.instances.records.items()
                if record["Placement"]["GroupName"] == value and record["State"]["Name"] != "terminated"
            ]

    # Administration

    def set_faults(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Faults for tests; ValueError names the key that is not known."""
        unknown = set(wanted) - {"insufficient_capacity", "lost_host", "link", "partition"}
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
        if capacity := wanted.get("insufficient_capacity"):
            self.instances.faults.append(
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
                for name, record in self.instances.records.items()
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


def _link_name(link: Record) -> str:
    return f"ens{_FIRST_INTERFACE + int(link['Attachment']['DeviceIndex'])}"


def _interface(link: Record, instance_type: str) -> Interface:
    return Interface(
        _link_name(link),
        link["PrivateIpAddress"],
        link["_prefix_length"],
        rate_bits_per_s=instance_types.rate_bits_per_s(instance_type),
    )
