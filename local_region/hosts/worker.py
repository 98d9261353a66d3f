"""Child processes of a region that stand in for hardware (network, volumes): how to start, ask and end them.

Both sides talk over one pair of sequenced-packet sockets: a JSON object and file descriptors each way.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# A message holds a request or an answer, never a script: those travel as descriptors.
MESSAGE_BYTES = 128 * 1024
_MOST_DESCRIPTORS = 32
_ROOT = Path(__file__).resolve().parents[2]

Message = dict[str, Any]


def send(channel: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """ValueError: longer than the other side takes."""
    data = json.dumps(message).encode()
    if len(data) > MESSAGE_BYTES:
        raise ValueError(f"a message of {len(data)} bytes; at most {MESSAGE_BYTES}")
    socket.send_fds(channel, [data], list(descriptors))


def receive(channel: socket.socket) -> tuple[Message, list[int]]:
    """EOFError: the other side is gone."""
    data, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, _MOST_DESCRIPTORS)
    if not data:
        raise EOFError
    message: Message = json.loads(data)
    return message, descriptors


class Spawner:
    """Starts every child from one thread that lives as long as the region.

    The kernel sends a child its parent-death signal when the *thread* that started it ends, so children
    started by a passing thread would die with it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

    def start(
        self,
        argv: Sequence[str],
        pass_fds: Sequence[int] = (),
        *,
        stdin: int = subprocess.DEVNULL,
        stderr: int | None = None,
    ) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                pass_fds=pass_fds,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                # A terminal's Ctrl-C is for the region, which then ends its hosts in order.
                start_new_session=True,
            )

        return self._thread.submit(start).result()

    def close(self) -> None:
        self._thread.shutdown()


class Worker:
    """A child that runs `module` and serves requests. It dies with the region's process."""

    def __init__(self, spawner: Spawner, module: str, label: str, configuration: Message) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        program = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import serve; serve()"
        python = [sys.executable, "-I", "-S", "-c", program]
        arguments = [label, str(theirs.fileno()), json.dumps(configuration)]
        with theirs:
            self.process = spawner.start(["setpriv", "--pdeathsig", "KILL", *python, *arguments], [theirs.fileno()])

    def ask(self, message: Message, descriptors: Sequence[int] = ()) -> Message:
        """ValueError carries the worker's own refusal; ConnectionError: it is gone."""
        with self._lock:
            try:
                send(self._channel, message, descriptors)
                answer, _ = receive(self._channel)
            except (EOFError, OSError) as error:
                raise ConnectionError(f"process {self.process.pid} of the local region is gone") from error
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._channel.close()


def connect() -> tuple[socket.socket, Message]:
    """In the child: the channel to the region, and the configuration given."""
    _, _, number, configuration = sys.argv[-4:]
    return socket.socket(fileno=int(number)), json.loads(configuration)


def be_prompt() -> None:
    """Wake when due, not up to 50 us later (the kernel's default slack), before ordinary work on the machine.

    What stands in for hardware must not queue behind the load under test. Without the right to do so,
    priority stays as it is.
    """
    gc.disable()
    Path("/proc/self/timerslack_ns").write_text("1")
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def answer(channel: socket.socket, handle: Callable[[Message, list[int]], Message | None]) -> None:
    """Serve one request. ValueError from `handle` goes back to who asked; EOFError: the region is gone."""
    message, descriptors = receive(channel)
    try:
        send(channel, handle(message, descriptors) or {})
    except ValueError as error:
        send(channel, {"error": str(error)})
