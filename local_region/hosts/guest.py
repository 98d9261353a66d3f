"""Guest hosts: virtual machines with a kernel of their own, on the region's volumes and network.

A guest needs no right beyond a process's: its disks and cards are sockets of the region, its commands go through an
agent over a line of their own, so they work with every network card dead. Guests die with the region. `pgrep -f
INSTANCE_ID` finds one; killing it is pulling the plug. Distances between zones are netem's, in the guest's kernel.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from local_region.hosts.base import Completed, Distances, Host, HostSpec, Interface, Reason, device_path
from local_region.hosts.commands import Commands
from local_region.hosts.driver import Driver
from local_region.hosts.fabric import Fabric
from local_region.hosts.guest_image import ensure_image
from local_region.hosts.machine import (
    ENDPOINT_ADDRESS,
    ENDPOINT_PORT,
    MANAGEMENT_ADDRESS,
    MANAGEMENT_SLOT,
    Machine,
)
from local_region.hosts.monitor import RefusedError
from local_region.hosts.volumes import Volumes

log = logging.getLogger("local_region.guest")

_SCRIPTS = Path(__file__).with_name("image")
# Generous: many guests may start on few cores.
_BOOT_TIMEOUT_S = 180.0
_SET_UP_TIMEOUT_S = 60.0
_CANCEL_POLL_S = 0.05
_CLOCK_TOLERANCE_NS, _CLOCK_TRIES = 1_000_000, 5
# Routing tables of the interfaces, by index; the same as a process host's.
_FIRST_TABLE = 101


class GuestHost(Host):
    """A running guest. `resources` gives back what the region holds for it."""

    def __init__(
        self,
        spec: HostSpec,
        fabric: Fabric,
        volumes: Volumes,
        endpoint_port: int,
        distances: Distances,
        resources: ExitStack,
    ) -> None:
        self.spec = spec
        self.interfaces: tuple[Interface, ...] = ()
        self._fabric = fabric
        self._volumes = volumes
        self._endpoint_port = endpoint_port
        self._distances = distances
        self._resources = resources
        self._stopped = threading.Event()
        self._released = threading.Event()
        # The start of the guest that is told its network and time; there may be a later one.
        self._set_up = -1
        self._trouble = ""

    def boot(self, start: Callable[[Callable[[int], None]], Machine]) -> None:
        """Block until commands run. RuntimeError: it did not come up; ValueError: an address is in use."""
        self._machine = machine = start(self._arrive)
        self._commands = Commands(machine.agent)
        self._resources.callback(machine.close)
        try:
            self._resources.callback(self._volumes.release, self.instance_id)
            for interface in self.spec.interfaces:
                self._connect(interface)
            machine.freeze(False)
            with machine.state:
                machine.state.wait_for(lambda: self.answers() or not machine.running(), _BOOT_TIMEOUT_S)
            if not self.answers():
                raise RuntimeError(f"host {self.instance_id} did not start: {self._trouble or machine.last_words()}")
        except BaseException:
            machine.kill()
            machine.process.wait()
            self._resources.close()
            raise

    @property
    def instance_id(self) -> str:
        return self.spec.instance_id

    def alive(self) -> bool:
        return not self._released.is_set() and self._machine.running()

    def answers(self) -> bool:
        """Whether commands run now; a guest that starts anew is alive and does not."""
        return self._set_up == self._machine.agent.generation and self._machine.running()

    def run(
        self,
        script: str,
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        deadline = time.monotonic() + timeout_s
        reason = self._wait_for_agent(deadline, cancel)
        if reason:
            return Completed(None, b"", b"", reason)
        return self._commands.run(self._set_up, script, environment, deadline, cancel)

    def _wait_for_agent(self, deadline: float, cancel: threading.Event | None) -> Reason:
        state = self._machine.state
        while (left_s := deadline - time.monotonic()) > 0:
            if not self.alive():
                return "host-lost"
            if cancel and cancel.is_set():
                return "cancelled"
            with state:
                if state.wait_for(self.answers, min(left_s, _CANCEL_POLL_S)):
                    return ""
        return "timed-out"

    def _arrive(self, generation: int) -> None:
        """The guest has started, for the first time or anew: tell it what it cannot know."""
        try:
            self._set_time(generation)
            self._tell(generation, "configure", self._configuration(self.interfaces))
            self._tell(generation, "volumes", {})
        except (OSError, RefusedError) as error:
            self._trouble = str(error)
            log.warning("%s: %s", self.instance_id, error)
            return
        with self._machine.state:
            self._set_up = max(self._set_up, generation)
            self._machine.state.notify_all()

    def _set_time(self, generation: int) -> None:
        """To within a millisecond or so, so that what happens on several hosts has one order."""
        early_ns = 0
        for _ in range(_CLOCK_TRIES):
            self._machine.agent.ask("guest-set-time", {"time": time.time_ns() + early_ns}, generation=generation)
            late_ns = min((self._lateness_ns(generation) for _ in range(3)), key=abs)
            if abs(late_ns) < _CLOCK_TOLERANCE_NS:
                return
            # The time that was set was old when it arrived.
            early_ns += late_ns

    def _lateness_ns(self, generation: int) -> int:
        before = time.time_ns()
        inside: int = self._machine.agent.ask("guest-get-time", generation=generation)
        return (before + time.time_ns()) // 2 - inside

    def _tell(self, generation: int, script: str, environment: Mapping[str, str]) -> None:
        """OSError: the guest did not do as told."""
        text = (_SCRIPTS / script).read_text()
        deadline = time.monotonic() + _SET_UP_TIMEOUT_S
        done = self._commands.run(generation, text, environment, deadline)
        if done.exit_code != 0:
            raise OSError(f"{script}: {done.stderr.decode(errors='replace').strip() or done.reason}")

    def _configuration(self, interfaces: tuple[Interface, ...]) -> dict[str, str]:
        first = self.spec.interfaces
        lines = [_link_line(one, first.index(one) if one in first else None) for one in interfaces]
        return {
            "LINKS": "\n".join(lines),
            "HOST_NAME": "ip-" + first[0].address.replace(".", "-"),
            "NEAR_US": _microseconds(self._distances.same_az_round_trip_s / 2),
            "FAR_US": _microseconds(self._distances.cross_az_round_trip_s / 2),
            "MANAGEMENT_SLOT": str(MANAGEMENT_SLOT),
            "MANAGEMENT_ADDRESS": MANAGEMENT_ADDRESS,
            "ENDPOINT_ADDRESS": f"{ENDPOINT_ADDRESS}:{ENDPOINT_PORT}",
            "ENDPOINT_PORT": str(self._endpoint_port),
        }

    # Devices

    def attach(self, volume_id: str) -> None:
        volume = self._volumes.reserve(volume_id, self.spec)
        try:
            listener, path = self._machine.volume_socket(volume_id)
            with listener:
                volume.listen(self.instance_id, listener.fileno())
            self._machine.plug_volume(volume_id, path)
            self._ask("volumes", WANTED=device_path(volume_id))
        except (OSError, ValueError):
            with suppress(OSError):
                self._machine.unplug_volume(volume_id)
            volume.forget(self.instance_id)
            raise
        if self._released.is_set():
            volume.forget(self.instance_id)

    def detach(self, volume_id: str) -> None:
        self._volumes.check_attached(volume_id, self.instance_id)
        self.run('rm -f "$LINK"', environment={"LINK": device_path(volume_id)}, timeout_s=_SET_UP_TIMEOUT_S)
        self._machine.unplug_volume(volume_id)
        self._volumes.detach(volume_id, self.instance_id)

    def plug(self, interface: Interface) -> None:
        """The guest sees a card with a carrier and no address: not every image of EC2 sets it up either."""
        self._connect(interface)
        try:
            self._ask("configure", **self._configuration((interface,)))
        except ConnectionError:
            self.unplug(interface.name)
            raise

    def _ask(self, script: str, **environment: str) -> None:
        """ConnectionError: the guest does not do as asked, whenever it has started."""
        text = (_SCRIPTS / script).read_text()
        done = self.run(text, environment=environment, timeout_s=_SET_UP_TIMEOUT_S)
        if done.exit_code != 0:
            raise ConnectionError(f"{script}: {done.stderr.decode(errors='replace').strip() or done.reason}")

    def _connect(self, interface: Interface) -> None:
        card = b"\x02\x00" + socket.inet_aton(interface.address)
        slot = int(interface.name.removeprefix("ens"))
        frames = self._machine.plug_link(interface.name, slot, card)
        try:
            self._fabric.connect(interface, self.spec.availability_zone, frames, card)
        except ValueError:
            self._machine.unplug_link(interface.name)
            raise
        finally:
            os.close(frames)
        self._resources.callback(self._fabric.disconnect, interface.address)
        self.interfaces = (*self.interfaces, interface)

    def unplug(self, name: str) -> None:
        self._fabric.disconnect(next(one.address for one in self.interfaces if one.name == name))
        self.interfaces = tuple(one for one in self.interfaces if one.name != name)
        self._machine.unplug_link(name)

    def freeze(self, frozen: bool) -> None:
        self._machine.freeze(frozen)

    # Its end

    def stop(self) -> None:
        self._stopped.set()
        if self._released.is_set():
            return
        self._fabric.cut_off(self.interfaces)
        self._machine.kill()
        self._released.wait()

    def ended(self) -> bool:
        """Wait for the end and give everything back. True: the end was asked for."""
        self._machine.process.wait()
        self._resources.close()
        self._released.set()
        return self._stopped.is_set()


def _link_line(interface: Interface, index: int | None) -> str:
    """For the script `configure`. Only the interfaces of the launch, which have an index, get their addresses."""
    subnet = ipaddress.ip_network(f"{interface.address}/{interface.prefix_length}", strict=False)
    parts = [interface.name, interface.name.removeprefix("ens"), str(interface.mtu), str(subnet)]
    if index is not None:
        # The first address of a subnet is its router's.
        parts += [interface.address, str(interface.prefix_length), str(subnet[1]), str(_FIRST_TABLE + index)]
    return " ".join(parts)


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1e6))


class GuestHosts(Driver[GuestHost]):
    """The driver. `folder` holds the guests' consoles; distances between zones are the guests' own doing."""

    kind = "guest"

    def __init__(
        self,
        folder: Path,
        *,
        endpoint_port: int,
        distances: Distances | None = None,
        volumes: Path = Path("/dev/shm"),  # noqa: S108 - only unlinked files go there
    ) -> None:
        self._image = ensure_image()
        self._accelerator = self._image.accelerator()
        self._distances = distances or Distances()
        super().__init__(folder, self._distances, Distances(0, 0, 0), volumes)
        self._endpoint_port = endpoint_port

    def launch(self, spec: HostSpec, *, on_death: Callable[[str], None]) -> GuestHost:
        folder = self._folder / spec.instance_id
        folder.mkdir()
        resources = ExitStack()
        resources.callback(shutil.rmtree, folder, ignore_errors=True)
        host = GuestHost(spec, self._fabric, self._volumes, self._endpoint_port, self._distances, resources)
        host.boot(
            lambda on_open: Machine(
                self._spawner, self._label, spec, self._image, self._accelerator, folder, self._endpoint_port, on_open
            )
        )
        return self._began(host, on_death)

    def set_frozen(self, instance_id: str, *, frozen: bool) -> None:
        """Stop a guest's CPUs, or let them go on: to its peers it hangs."""
        self._hosts[instance_id].freeze(frozen)
