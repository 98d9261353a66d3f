"""The two lines to a virtual machine: QEMU's own monitor (QMP), and the guest agent inside it.

Both speak JSON, an object a line, over one end of a socket pair: https://www.qemu.org/docs/master/interop/qmp-spec.html
and https://www.qemu.org/docs/master/interop/qemu-ga-ref.html
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]

_RECEIVE_BYTES = 1024 * 1024
_ANSWER_TIMEOUT_S = 30.0
# How soon who waits for an agent notices that it is another one.
_LOSS_POLL_S = 0.1


class RefusedError(RuntimeError):
    """The other side understood, and refused; the message is its own."""


class Monitor:
    """QMP. Events go to `on_event`, on the thread that reads."""

    def __init__(self, channel: socket.socket, on_event: Callable[[Json], None]) -> None:
        self._channel = channel
        self._on_event = on_event
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="qmp", daemon=True)
        self._thread.start()

    def ask(self, command: str, arguments: Json | None = None, descriptors: Sequence[int] = ()) -> Any:
        """RefusedError: QEMU said no. ConnectionError: it is gone, or does not answer."""
        request = json.dumps({"execute": command, "arguments": arguments or {}}).encode()
        with self._lock:
            try:
                socket.send_fds(self._channel, [request], list(descriptors))
                answer = self._answers.get(timeout=_ANSWER_TIMEOUT_S)
            except (OSError, queue.Empty) as error:
                raise ConnectionError("QEMU does not answer") from error
            if answer is None:
                # For whoever asks next.
                self._answers.put(None)
                raise ConnectionError("QEMU is gone")
        if "error" in answer:
            raise RefusedError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def close(self) -> None:
        self._channel.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._channel.close()

    def _read(self) -> None:
        try:
            # One reader of a socket is enough, and writing goes past it.
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            pass
        self._answers.put(None)

    def _take(self, message: Json) -> None:
        if "event" in message:
            self._on_event(message)
        elif "QMP" not in message:
            self._answers.put(message)


class Agent:
    """The guest agent. It answers one request at a time, so requests of several threads take turns."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._received = bytearray()
        self._numbers = itertools.count(1)
        # Whether no answer is under way that nobody waits for.
        self._in_step = False
        # Counts the times that the guest has lost its agent, which it does when it starts anew.
        self.generation = 0

    def lost(self) -> None:
        """Who waits for an answer waits in vain. The next agent is another one."""
        self.generation += 1

    def ask(
        self,
        command: str,
        arguments: Json | None = None,
        *,
        timeout_s: float = _ANSWER_TIMEOUT_S,
        generation: int | None = None,
    ) -> Any:
        """Of the agent of this `generation`, or of whichever is there.

        RefusedError: it said no. TimeoutError: it does not answer. ConnectionError: it is gone.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError("the guest does not answer")
        try:
            generation = self.generation if generation is None else generation
            if not self._in_step:
                self._synchronise(generation, deadline)
            self._in_step = False
            self._send({"execute": command, "arguments": arguments or {}})
            answer = json.loads(self._until(b"\n", generation, deadline))
            self._in_step = generation == self.generation
        finally:
            self._lock.release()
        if "error" in answer:
            raise RefusedError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def close(self) -> None:
        self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def _synchronise(self, generation: int, deadline: float) -> None:
        number = next(self._numbers)
        self._received.clear()
        # The byte is in no JSON text: the agent drops what came before it, as we do with its own.
        self._channel.sendall(b"\xff")
        self._send({"execute": "guest-sync-delimited", "arguments": {"id": number}})
        while True:
            self._until(b"\xff", generation, deadline)
            if json.loads(self._until(b"\n", generation, deadline)).get("return") == number:
                return

    def _send(self, request: Json) -> None:
        self._channel.settimeout(_ANSWER_TIMEOUT_S)
        self._channel.sendall(json.dumps(request).encode() + b"\n")

    def _until(self, mark: bytes, generation: int, deadline: float) -> bytes:
        searched = 0
        while (end := self._received.find(mark, searched)) < 0:
            searched = len(self._received)
            self._received += self._receive(generation, deadline)
        found = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return found

    def _receive(self, generation: int, deadline: float) -> bytes:
        while generation == self.generation:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the guest does not answer")
            self._channel.settimeout(min(left_s, _LOSS_POLL_S))
            with contextlib.suppress(TimeoutError):
                data = self._channel.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionError("QEMU is gone")
                return data
        raise ConnectionResetError("the guest has started anew")
