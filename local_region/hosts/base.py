"""What the control plane asks of hosts, whichever kind they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from local_region.ebs import Limits

BY_ID = "/dev/disk/by-id"

Reason = Literal["", "timed-out", "cancelled", "host-lost"]


class HostsUnavailableError(RuntimeError):
    """This machine cannot carry hosts of the wanted kind; the message says what is missing."""


@dataclass(frozen=True)
class Distances:
    """Round trips in seconds. They are inputs of the local region, added to what its own path costs."""

    ebs_round_trip_s: float = 0.0005
    same_az_round_trip_s: float = 0.0001
    cross_az_round_trip_s: float = 0.001


@dataclass(frozen=True)
class VolumeSpec:
    volume_id: str
    size_bytes: int
    limits: Limits
    availability_zone: str
    multi_attach: bool = False


@dataclass(frozen=True)
class Interface:
    """One network link of a host. `rate_bits_per_s` limits what the host sends; None is unlimited."""

    name: str
    address: str
    prefix_length: int
    mtu: int = 9001
    rate_bits_per_s: int | None = None


@dataclass(frozen=True)
class HostSpec:
    instance_id: str
    instance_type: str
    availability_zone: str
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True)
class Completed:
    """A script that ended. `exit_code` is None when it was killed, and `reason` then says by what."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    reason: Reason = ""


class Host(Protocol):
    @property
    def instance_id(self) -> str: ...

    def alive(self) -> bool: ...

    def answers(self) -> bool:
        """Whether a command would run at once. A host that starts anew is alive, and does not answer meanwhile."""
        return self.alive()

    def run(
        self,
        script: str,
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Run a script as root of the host, by /bin/bash unless it has a shebang. Blocks; thread-safe.

        A host that starts anew is waited for, within the time-out; what ran on it is lost.
        """

    def attach(self, volume_id: str) -> None:
        """Make the volume appear under `BY_ID`. ValueError: unknown, in another AZ, or in use elsewhere."""

    def detach(self, volume_id: str) -> None: ...

    def plug(self, interface: Interface) -> None:
        """Add a network interface while the host runs. ValueError: it cannot be; ConnectionError: the host is gone."""

    def unplug(self, name: str) -> None:
        """Take an interface of this name away."""

    def stop(self) -> None:
        """Pull the plug. Idempotent; `on_death` is not called."""


class HostDriver(Protocol):
    @property
    def kind(self) -> str: ...

    def create_volume(self, spec: VolumeSpec) -> None: ...

    def delete_volume(self, volume_id: str) -> None:
        """Forget the volume and its data. ValueError: still attached."""

    def launch(self, spec: HostSpec, *, on_death: Callable[[str], None]) -> Host:
        """Block until commands can run. `on_death(instance_id)` is called once if the host dies unasked."""

    def leftovers(self) -> list[str]:
        """What still exists of this driver's hosts and volumes, in words; empty when nothing does."""

    def close(self) -> None: ...


def device_path(volume_id: str) -> str:
    """Where a host finds an attached volume, as on EC2 Nitro instances (the id without its dash)."""
    return f"{BY_ID}/nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
