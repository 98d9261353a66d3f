"""A virtual machine: QEMU's command line, its devices while it runs, and when its agent answers.

Where what is plugged, on PCI bus 0: the guest's names follow from it (ens6 is slot 6, as systemd names them).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from local_region.hosts import carry
from local_region.hosts.base import HostSpec
from local_region.hosts.guest_image import Accelerator, Image
from local_region.hosts.monitor import Agent, Json, Monitor, RefusedError
from local_region.hosts.worker import Spawner

log = logging.getLogger("local_region.machine")

# PostgreSQL, fio and DRBD fit; the first guest that swapped or was killed for memory would spoil a campaign.
_MEMORY_MIB = 1024

AGENT_SLOT, MANAGEMENT_SLOT, ROOT_SLOT = 2, 3, 4
LINK_SLOTS = range(5, 16)
_VOLUME_SLOTS = range(16, 32)

# The way to the endpoint, in a network that no one routes.
MANAGEMENT_ADDRESS, ENDPOINT_ADDRESS, ENDPOINT_PORT = "192.0.2.15", "192.0.2.100", 80
_MANAGEMENT_NETWORK = "192.0.2.0/24"

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_UNPLUG_TIMEOUT_S = 20.0
_KERNEL = (
    "console=ttyS0 quiet panic=1 root=/dev/nvme0n1 rw init=/usr/lib/volumetry/init net.ifnames=0 ipv6.disable_ipv6=1"
)


class Machine:
    """Starts at once. `on_open` is called, on a thread of its own, whenever an agent has begun to listen."""

    def __init__(
        self,
        spawner: Spawner,
        label: str,
        spec: HostSpec,
        image: Image,
        accelerator: Accelerator,
        folder: Path,
        endpoint_port: int,
        on_open: Callable[[int], None],
    ) -> None:
        self._on_open = on_open
        self.state = threading.Condition()
        self._deleted: set[str] = set()
        self._names = itertools.count()
        self._volumes: dict[str, int] = {}
        # Paths of sockets are short, and this folder's may be long.
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        monitor, theirs = socket.socketpair()
        agent, agents = socket.socketpair()
        argv = [
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
            *("-name", f"{spec.instance_id},debug-threads=on", "-nodefaults", "-no-user-config"),
            # It waits for its first cards, which are plugged as later ones are.
            *("-display", "none", "-S"),
            *("-machine", "pc", "-m", str(_MEMORY_MIB), *accelerator.options),
            *("-kernel", str(image.kernel), "-append", f"{_KERNEL} {accelerator.kernel} {label}"),
            *("-chardev", f"socket,id=monitor,fd={theirs.fileno()}", "-mon", "chardev=monitor,mode=control"),
            *("-chardev", f"file,id=console,path=/proc/self/fd/{self._folder}/console", "-serial", "chardev:console"),
            *("-device", f"virtio-serial-pci,addr={AGENT_SLOT:#x}", "-chardev", f"socket,id=ga,fd={agents.fileno()}"),
            *("-device", "virtserialport,chardev=ga,id=agent,name=org.qemu.guest_agent.0"),
            *("-drive", f"if=none,id=root,format=raw,snapshot=on,cache=unsafe,file={_escaped(image.root)}"),
            *("-device", f"nvme,drive=root,serial=root,addr={ROOT_SLOT:#x}"),
            *("-netdev", _management(endpoint_port)),
            *("-device", f"virtio-net-pci,netdev=management,addr={MANAGEMENT_SLOT:#x},romfile="),
        ]
        with theirs, agents:
            self.process = spawner.start(argv, (theirs.fileno(), agents.fileno(), self._folder))
        self.agent = Agent(agent)
        self.monitor = Monitor(monitor, self._on_event)
        self.monitor.ask("qmp_capabilities")

    # What it says by itself

    def _on_event(self, event: Json) -> None:
        with self.state:
            if event["event"] == "DEVICE_DELETED":
                self._deleted.add(event["data"].get("device", ""))
            elif event["event"] == "VSERPORT_CHANGE":
                self._agent_changed(event["data"]["open"])
            self.state.notify_all()

    def _agent_changed(self, opened: bool) -> None:
        if opened:
            threading.Thread(target=self._on_open, args=(self.agent.generation,), name="arrival", daemon=True).start()
        else:
            self.agent.lost()

    # Devices

    def plug_link(self, name: str, slot: int, card: bytes) -> int:
        """A descriptor of the Ethernet frames of a new network card. ValueError: it cannot be."""
        if slot not in LINK_SLOTS:
            raise ValueError(f"a guest has no place for {name}")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        ours.setblocking(False)
        with theirs, ours, _refusals():
            handed = f"descriptor{next(self._names)}"
            self.monitor.ask("getfd", {"fdname": handed}, [theirs.fileno()])
            self.monitor.ask("netdev_add", {"type": "dgram", "id": name, "local": {"type": "fd", "str": handed}})
            address = card.hex(":")
            device = {"driver": "virtio-net-pci", "netdev": name, "id": f"card-{name}", "mac": address, "romfile": ""}
            self.monitor.ask("device_add", {**device, "addr": f"{slot:#x}"})
            return ours.detach()

    def unplug_link(self, name: str) -> None:
        self._unplug(f"card-{name}")
        with contextlib.suppress(RefusedError):
            self.monitor.ask("netdev_del", {"id": name})

    def volume_socket(self, volume_id: str) -> tuple[socket.socket, str]:
        """A listening socket, and its path for QEMU; it is unlinked when the volume is plugged."""
        path = f"/proc/self/fd/{self._folder}/{volume_id}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        return listener, path

    def plug_volume(self, volume_id: str, path: str) -> None:
        """ValueError: it cannot be."""
        serial = volume_id.replace("-", "")
        with self.state:
            slot = next((one for one in _VOLUME_SLOTS if one not in self._volumes.values()), None)
            if slot is None:
                raise ValueError(f"a guest has no place for {volume_id}")
            self._volumes[volume_id] = slot
        try:
            with _refusals():
                server = {"type": "unix", "path": path}
                node = {"driver": "nbd", "node-name": serial, "server": server, "export": ""}
                self.monitor.ask("blockdev-add", node)
                device = {"driver": "nvme", "id": f"disk-{serial}", "drive": serial, "serial": serial}
                self.monitor.ask("device_add", {**device, "addr": f"{slot:#x}"})
        except (ConnectionError, ValueError):
            self._forget_volume(volume_id)
            raise
        finally:
            Path(path).unlink()

    def unplug_volume(self, volume_id: str) -> None:
        self._unplug(f"disk-{volume_id.replace('-', '')}")
        self._forget_volume(volume_id)

    def _forget_volume(self, volume_id: str) -> None:
        with contextlib.suppress(RefusedError, ConnectionError):
            self.monitor.ask("blockdev-del", {"node-name": volume_id.replace("-", "")})
        with self.state:
            self._volumes.pop(volume_id, None)

    def _unplug(self, device: str) -> None:
        """Ask the guest to let a device go, and wait until it has."""
        with self.state:
            self._deleted.discard(device)
        with contextlib.suppress(RefusedError):
            self.monitor.ask("device_del", {"id": device})
        with self.state:
            if not self.state.wait_for(lambda: device in self._deleted, _UNPLUG_TIMEOUT_S):
                log.warning("the guest does not let %s go", device)

    def freeze(self, frozen: bool) -> None:
        self.monitor.ask("stop" if frozen else "cont")

    # Its end

    def running(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        """Of its console."""
        console = os.open("console", os.O_RDONLY, dir_fd=self._folder)
        with os.fdopen(console, errors="replace") as lines:
            return "".join(lines.readlines()[-3:]).strip() or "it said nothing"

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        """After its process has ended."""
        self.monitor.close()
        self.agent.close()
        os.close(self._folder)
        with self.state:
            self.agent.lost()
            self.state.notify_all()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RefusedError as refusal:
        raise ValueError(str(refusal)) from refusal


def _management(endpoint_port: int) -> str:
    """User-space networking in which there is nothing but the endpoint."""
    carrier = shlex.join([sys.executable, "-I", "-S", carry.__file__, str(endpoint_port)])
    forward = f"guestfwd=tcp:{ENDPOINT_ADDRESS}:{ENDPOINT_PORT}-cmd:{_escaped(carrier)}"
    return f"user,id=management,restrict=on,net={_MANAGEMENT_NETWORK},{forward}"


def _escaped(value: object) -> str:
    """As a value within one of QEMU's options."""
    return str(value).replace(",", ",,")
