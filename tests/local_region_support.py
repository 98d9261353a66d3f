"""Hosts for tests of the control plane: scripts run as plain processes, volumes are names.

Run as a program it serves a region with such hosts: python local_region_support.py STATE
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_region.hosts.base import Completed, Host, HostSpec, VolumeSpec
from local_region.region import Region


@dataclass
class FakeHost:
    spec: HostSpec
    directory: Path
    driver: FakeHosts
    on_death: Callable[[str], None]
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: bool = False

    @property
    def instance_id(self) -> str:
        return self.spec.instance_id

    def alive(self) -> bool:
        return not self.stopped

    def run(
        self,
        script: str,
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        if not self.alive():
            return Completed(None, b"", b"", "host-lost")
        path = self.directory / f"script-{time.monotonic_ns()}"
        path.write_text(script)
        process = subprocess.Popen(
            ["/bin/bash", str(path)],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "HOST_ID": self.instance_id, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.running.add(process)
        deadline = time.monotonic() + timeout_s
        reason = ""
        while process.poll() is None and not reason:
            reason = (
                "host-lost"
                if self.stopped
                else "cancelled"
                if cancel and cancel.is_set()
                else "timed-out"
                if time.monotonic() > deadline
                else ""
            )
            time.sleep(0.005)
        if reason:
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        self.running.discard(process)
        # A script ends its host as a crash would: the host sees itself die.
        if (self.directory / "die").exists() and not self.stopped:
            self.stopped = True
            self.on_death(self.instance_id)
            return Completed(None, b"", b"", "host-lost")
        return Completed(None if reason else process.returncode, stdout, stderr, reason)  # type: ignore[arg-type]

    def attach(self, volume_id: str) -> None:
        self.driver.attached.setdefault(volume_id, set()).add(self.instance_id)

    def detach(self, volume_id: str) -> None:
        self.driver.attached[volume_id].discard(self.instance_id)

    def stop(self) -> None:
        self.stopped = True
        self.driver.hosts.pop(self.instance_id, None)
        for users in self.driver.attached.values():
            users.discard(self.instance_id)


class FakeHosts:
    kind = "fake"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts: dict[str, FakeHost] = {}
        self.volumes: dict[str, VolumeSpec] = {}
        self.attached: dict[str, set[str]] = {}

    def create_volume(self, spec: VolumeSpec) -> None:
        self.volumes[spec.volume_id] = spec

    def delete_volume(self, volume_id: str) -> None:
        if self.attached.get(volume_id):
            raise ValueError(f"{volume_id} is still attached to {self.attached[volume_id]}")
        del self.volumes[volume_id]

    def launch(self, spec: HostSpec, *, on_death: Callable[[str], None]) -> Host:
        directory = self.directory / spec.instance_id
        directory.mkdir(parents=True)
        # Long enough that a launch of several one after another would show.
        time.sleep(0.2)
        (directory / "interfaces").write_text("".join(f"{i.name} {i.address}\n" for i in spec.interfaces))
        self.hosts[spec.instance_id] = FakeHost(spec, directory, self, on_death)
        return self.hosts[spec.instance_id]

    def leftovers(self) -> list[str]:
        return [f"host {name}" for name in self.hosts] + [f"volume {name}" for name in self.volumes]

    def close(self) -> None:
        for host in list(self.hosts.values()):
            host.stop()
        self.volumes.clear()


if __name__ == "__main__":
    Region(Path(sys.argv[1]), lambda folder, _port: FakeHosts(folder)).run()
