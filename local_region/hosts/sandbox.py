"""One bubblewrap sandbox: its start, process 1 inside it as the one to ask, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from local_region.hosts import init
from local_region.hosts.base import HostSpec, HostsUnavailableError
from local_region.hosts.worker import Message, Spawner, receive, send

_TIMEOUT_S = 20.0
_NAMESPACES = ("bwrap", "--unshare-all", "--die-with-parent", "--cap-add", "ALL", "--ro-bind", "/", "/")


class Sandbox:
    """Blocks until process 1 is ready. RuntimeError: it did not come up, with what it said."""

    def __init__(self, spawner: Spawner, label: str, spec: HostSpec, var_tmp: Path, endpoint_port: int) -> None:
        self._closing, self._closed = threading.Lock(), False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_TIMEOUT_S)
        said = os.memfd_create("stderr")
        info, info_end = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        configuration = {
            "endpoint_port": endpoint_port,
            "interfaces": [vars(interface) for interface in spec.interfaces],
            "label": label,
        }
        process_1 = [spec.instance_id, str(theirs.fileno()), json.dumps(configuration)]
        argv = [*_bwrap(spec, var_tmp, info_end, nothing), *process_1]
        passed = (theirs.fileno(), info_end, nothing)
        self.bwrap = spawner.start(argv, passed, stderr=said)
        for descriptor in (theirs.detach(), info_end, nothing):
            os.close(descriptor)
        try:
            found = re.search(rb'"child-pid": (\d+)', os.read(info, 4096))
            if not found:
                raise EOFError
            self._process_1 = os.pidfd_open(int(found[1]))
            _, self._handed_out = receive(self._channel)
        except (EOFError, OSError) as error:
            self.bwrap.kill()
            self.bwrap.wait()
            text = os.pread(said, 4096, 0).decode(errors="replace").strip()
            raise RuntimeError(f"host {spec.instance_id} did not start: {text or error}") from error
        finally:
            os.close(info)
            os.close(said)

    @contextlib.contextmanager
    def handed_out(self) -> Iterator[list[int]]:
        """The endpoint's listening socket, the file over /proc/stat, a TUN device an interface; then closed."""
        try:
            yield self._handed_out
        finally:
            for descriptor in self._handed_out:
                os.close(descriptor)

    def converse(self, message: Message, descriptors: Sequence[int] = ()) -> socket.socket:
        """Begin a conversation with process 1. Closing it ends what it asked for; OSError: host is gone."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                send(self._channel, message, [theirs.fileno(), *descriptors])
            except OSError:
                ours.close()
                raise
        return ours

    def ask(self, message: Message) -> list[int]:
        """The descriptors answered. ValueError: refused; ConnectionError: the host is gone or does not answer."""
        try:
            with self.converse(message) as conversation:
                conversation.settimeout(_TIMEOUT_S)
                answer, descriptors = receive(conversation)
        except (EOFError, OSError) as error:
            raise ConnectionError("the host does not answer") from error
        if "error" in answer:
            raise ValueError(answer["error"])
        return descriptors

    def kill(self) -> None:
        """All processes inside end with process 1, even those that are stopped. Idempotent."""
        with self._closing, contextlib.suppress(ProcessLookupError):
            if not self._closed:
                signal.pidfd_send_signal(self._process_1, signal.SIGKILL)

    def wait(self) -> None:
        """Block until the last process of it is gone."""
        self.bwrap.wait()
        # When bwrap was killed first, the kernel is still ending the others.
        rest = select.poll()
        rest.register(self._process_1, select.POLLIN)
        rest.poll()

    def close(self) -> None:
        with self._closing:
            self._closed = True
            os.close(self._process_1)
            self._channel.close()


def _bwrap(spec: HostSpec, var_tmp: Path, info: int, empty: int) -> list[str]:
    """Everything up to the arguments of process 1. The order of the mounts matters."""
    argv = [*_NAMESPACES, "--as-pid-1", "--clearenv", "--info-fd", str(info), "--chdir", "/"]
    argv += ["--hostname", "ip-" + spec.interfaces[0].address.replace(".", "-")]
    argv += ["--dev", "/dev", "--dev-bind", "/dev/net/tun", "/dev/net/tun", "--dir", str(init.BY_ID)]
    argv += ["--dev-bind-try", "/dev/fuse", "/dev/fuse"]
    argv += ["--proc", "/proc", "--bind-data", str(empty), "/proc/stat"]
    argv += ["--tmpfs", "/run", "--dir", "/run/volumetry", "--tmpfs", "/tmp"]  # noqa: S108 - the host's own
    argv += ["--bind", str(var_tmp), "/var/tmp"]  # noqa: S108 - the host's own
    # The interpreter or the program may lie in a folder hidden by these.
    for path in (sys.prefix, sys.base_prefix, init.__file__):
        argv += ["--ro-bind", path, path]
    return [*argv, "--", sys.executable, "-I", "-S", init.__file__]


def require() -> None:
    """HostsUnavailableError says what this machine lacks."""
    for tool, package in (("bwrap", "bubblewrap"), ("setpriv", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(tool):
            raise HostsUnavailableError(f"process hosts need {tool}: install the package {package}")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise HostsUnavailableError("process hosts need /dev/net/tun: run as root, or give this user access to it")
    trial = subprocess.run([*_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        raise HostsUnavailableError(
            f"process hosts need root, or a kernel that lets users make namespaces; bwrap says: {trial.stderr.strip()}"
        )
