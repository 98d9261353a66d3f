"""What drivers of every kind have in common: a folder, a network, volumes, and nothing that outlives them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from local_region.hosts.base import Distances, HostSpec, Interface, VolumeSpec
from local_region.hosts.fabric import Fabric
from local_region.hosts.volumes import Volumes
from local_region.hosts.worker import Spawner

# Outlives the region and removes its folder, to which dying hosts may still be writing for a moment.
_JANITOR = 'read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.5; done'


class RunningHost(Protocol):
    interfaces: tuple[Interface, ...]

    @property
    def spec(self) -> HostSpec: ...

    @property
    def instance_id(self) -> str: ...

    def stop(self) -> None: ...

    def ended(self) -> bool:
        """Wait for the end and give everything back. True: the end was asked for."""


H = TypeVar("H", bound=RunningHost)


class Driver(Generic[H]):
    """`folder` is made, and removed at the end, however it comes.

    `volumes` is where volumes keep what was written to them: a tmpfs is steadier than a disk. `on_the_wire` are the
    distances that the network adds; volumes have those that are asked for.
    """

    def __init__(self, folder: Path, distances: Distances, on_the_wire: Distances, volumes: Path) -> None:
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True)
        self._label = f"hosts-of={self._folder}"
        self._hosts: dict[str, H] = {}
        self._spawner = Spawner()
        # Closed in reverse order.
        self._resources = ExitStack()
        self._resources.callback(self._spawner.close)
        own = [self._start_janitor()]
        self._fabric = Fabric(self._spawner, self._label, on_the_wire)
        self._resources.callback(self._fabric.worker.close)
        own.append(self._fabric.worker.process.pid)
        self._volumes = Volumes(self._spawner, self._label, volumes, distances.ebs_round_trip_s)
        self._resources.callback(self._volumes.close)
        self._own = set(own)

    def _start_janitor(self) -> int:
        """The process that removes the folder when a descriptor of ours closes."""
        wait_for, waits = os.pipe()
        argv = ["sh", "-c", _JANITOR, self._label, str(self._folder)]
        process = self._spawner.start(argv, stdin=wait_for)
        os.close(wait_for)
        self._resources.callback(process.wait)
        self._resources.callback(os.close, waits)
        return process.pid

    def create_volume(self, spec: VolumeSpec) -> None:
        self._volumes.create(spec)

    def delete_volume(self, volume_id: str) -> None:
        self._volumes.delete(volume_id)

    def _began(self, host: H, on_death: Callable[[str], None]) -> H:
        """Know a host that has come up, until it ends."""
        self._hosts[host.instance_id] = host
        watch = threading.Thread(target=self._watch, args=(host, on_death), name=host.instance_id, daemon=True)
        watch.start()
        return host

    def _watch(self, host: H, on_death: Callable[[str], None]) -> None:
        asked_for = host.ended()
        self._hosts.pop(host.instance_id, None)
        if not asked_for:
            on_death(host.instance_id)

    def set_link(self, instance_id: str, interface: str, *, up: bool) -> None:
        """Pull or replug the cable of one interface ("ens5"): packets are lost, the host sees no change."""
        addresses = {one.name: one.address for one in self._hosts[instance_id].interfaces}
        self._fabric.set_link(addresses[interface], up=up)

    def set_partition(self, one: Iterable[str], other: Iterable[str], *, cut: bool) -> None:
        """Lose, or carry again, all packets between two groups of instances."""
        self._fabric.set_partition(self._addresses(one), self._addresses(other), cut=cut)

    def _addresses(self, instance_ids: Iterable[str]) -> list[str]:
        hosts = (self._hosts[instance_id] for instance_id in instance_ids)
        return [interface.address for host in hosts for interface in host.interfaces]

    def leftovers(self) -> list[str]:
        processes = (one for one in Path("/proc").iterdir() if one.name.isdigit())
        found = [
            f"process {process.name}: {arguments[:120]}"
            for process in processes
            if int(process.name) not in self._own and self._label in (arguments := _arguments(process))
        ]
        if self._folder.exists():
            found += [f"folder {path}" for path in self._folder.iterdir()]
        return found

    def close(self) -> None:
        """Idempotent."""
        for host in list(self._hosts.values()):
            host.stop()
        self._own = set()
        self._resources.close()


def _arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
