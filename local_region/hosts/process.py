"""Process hosts: each a bubblewrap sandbox with its own processes, network, /run, /var/tmp and devices.

A host's interfaces, sockets, mounts and volumes live in its namespaces and in descriptors of the region's
children, so they go with them, also when the region is killed. `pgrep -f INSTANCE_ID` finds one host: its bwrap,
and process 1 inside. Killing either is pulling the plug.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from local_region.hosts.accounting import Accounting
from local_region.hosts.base import Completed, Distances, Host, HostSpec, Interface, Reason, device_path
from local_region.hosts.driver import Driver
from local_region.hosts.fabric import Fabric
from local_region.hosts.relay import Relay
from local_region.hosts.sandbox import Sandbox, require
from local_region.hosts.volumes import Volumes
from local_region.hosts.worker import Message, receive

# How soon a cancelled script is noticed.
_CANCEL_POLL_S = 0.05


class ProcessHost(Host):
    """A running sandbox. `resources` gives back what the region holds for it."""

    def __init__(
        self, spec: HostSpec, sandbox: Sandbox, fabric: Fabric, volumes: Volumes, resources: ExitStack
    ) -> None:
        self.spec = spec
        self.interfaces = spec.interfaces
        self._sandbox = sandbox
        self._fabric = fabric
        self._volumes = volumes
        self._resources = resources
        self._stopped = threading.Event()
        self._released = threading.Event()

    @property
    def instance_id(self) -> str:
        return self.spec.instance_id

    def alive(self) -> bool:
        return not self._released.is_set() and self._sandbox.bwrap.poll() is None

    def run(
        self,
        script: str,
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        with ExitStack() as files:
            text, stdout, stderr = (
                files.enter_context(os.fdopen(os.memfd_create(name), "w+b")) for name in ("script", "stdout", "stderr")
            )
            text.write(script.encode())
            text.flush()
            request: Message = {"do": "run", "environment": dict(environment)}
            descriptors = [text.fileno(), stdout.fileno(), stderr.fileno()]
            try:
                with self._sandbox.converse(request, descriptors) as conversation:
                    exit_code, reason = _wait(conversation, timeout_s, cancel)
            except OSError:
                exit_code, reason = None, "host-lost"
            return Completed(exit_code, _text(stdout.fileno()), _text(stderr.fileno()), reason)

    def attach(self, volume_id: str) -> None:
        volume = self._volumes.reserve(volume_id, self.spec)
        name = Path(device_path(volume_id)).name
        try:
            (listener,) = self._sandbox.ask({"do": "attach", "name": name})
            with socket.socket(fileno=listener):
                volume.listen(self.instance_id, listener)
        except (ConnectionError, ValueError):
            volume.forget(self.instance_id)
            raise
        if self._released.is_set():
            volume.forget(self.instance_id)

    def detach(self, volume_id: str) -> None:
        self._volumes.detach(volume_id, self.instance_id)
        self._sandbox.ask({"do": "detach", "name": Path(device_path(volume_id)).name})

    def plug(self, interface: Interface) -> None:
        (tun,) = self._sandbox.ask({"do": "plug", "interface": vars(interface), "index": len(self.interfaces)})
        try:
            self._fabric.connect(interface, self.spec.availability_zone, tun)
        finally:
            os.close(tun)
        self._resources.callback(self._fabric.disconnect, interface.address)
        self.interfaces = (*self.interfaces, interface)

    def unplug(self, name: str) -> None:
        # The device goes with its last descriptor, which the network holds.
        self._fabric.disconnect(next(one.address for one in self.interfaces if one.name == name))
        self.interfaces = tuple(one for one in self.interfaces if one.name != name)

    def stop(self) -> None:
        self._stopped.set()
        if self._released.is_set():
            return
        self._fabric.cut_off(self.interfaces)
        self._sandbox.kill()
        self._released.wait()

    def ended(self) -> bool:
        """Wait for the end and give everything back. True: the end was asked for."""
        self._sandbox.wait()
        self._resources.close()
        self._released.set()
        return self._stopped.is_set()


def _wait(conversation: socket.socket, timeout_s: float, cancel: threading.Event | None) -> tuple[int | None, Reason]:
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if cancel and cancel.is_set():
            return None, "cancelled"
        conversation.settimeout(min(left_s, _CANCEL_POLL_S) if cancel else left_s)
        try:
            return receive(conversation)[0]["exit_code"], ""
        except TimeoutError:
            continue
        except EOFError:
            return None, "host-lost"
    return None, "timed-out"


def _text(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


class ProcessHosts(Driver[ProcessHost]):
    """The driver. `folder` holds the hosts' /var/tmp."""

    kind = "process"

    def __init__(
        self,
        folder: Path,
        *,
        endpoint_port: int,
        distances: Distances | None = None,
        volumes: Path = Path("/dev/shm"),  # noqa: S108 - only unlinked files go there
    ) -> None:
        require()
        distances = distances or Distances()
        super().__init__(folder, distances, distances, volumes)
        self._endpoint_port = endpoint_port
        self._relay = Relay(endpoint_port)
        self._resources.callback(self._relay.close)
        self._accounting = Accounting()
        self._resources.callback(self._accounting.close)

    def launch(self, spec: HostSpec, *, on_death: Callable[[str], None]) -> ProcessHost:
        with ExitStack() as resources:
            var_tmp = self._folder / spec.instance_id
            var_tmp.mkdir()
            resources.callback(shutil.rmtree, var_tmp, ignore_errors=True)
            sandbox = Sandbox(self._spawner, self._label, spec, var_tmp, self._endpoint_port)
            resources.callback(sandbox.close)
            try:
                self._connect(spec, sandbox, resources)
            except BaseException:
                sandbox.kill()
                sandbox.wait()
                raise
            host = ProcessHost(spec, sandbox, self._fabric, self._volumes, resources.pop_all())
        return self._began(host, on_death)

    def _connect(self, spec: HostSpec, sandbox: Sandbox, resources: ExitStack) -> None:
        """Take up what process 1 has handed out; `resources` gives it back. ValueError: address in use."""
        name, keep = spec.instance_id, resources.callback
        with sandbox.handed_out() as (endpoint, stat, *tuns):
            keep(self._volumes.release, name)
            for interface, tun in zip(spec.interfaces, tuns, strict=True):
                self._fabric.connect(interface, spec.availability_zone, tun)
                keep(self._fabric.disconnect, interface.address)
            self._relay.open(name, socket.socket(fileno=os.dup(endpoint)))
            keep(self._relay.shut, name)
            self._accounting.add(name, sandbox.bwrap.pid, os.dup(stat))
            keep(self._accounting.remove, name)
