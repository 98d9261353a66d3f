"""Scripts on a guest, by its agent: written as a file, run in a session of their own, their output read back."""

from __future__ import annotations

import base64
import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

from local_region.hosts.base import Completed, Reason
from local_region.hosts.monitor import Agent, Json

_BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_FOLDER = "/run/ssm"
# Static: on an emulated CPU it starts in half the time of what loads libraries.
_BUSYBOX = "/bin/busybox"
# Into files, because a daemon that holds on to a pipe would keep its script from ending. $0 is the script.
_BY_BASH = 'cd / && exec /bin/bash "$0" </dev/null >"$0.out" 2>"$0.err"'
_BY_ITSELF = 'cd / && chmod 700 "$0" && exec "$0" </dev/null >"$0.out" 2>"$0.err"'
# On an emulated CPU each look costs the guest about a millisecond: often at first, seldom for what takes long.
_FIRST_LOOK_S, _LAST_LOOK_S, _SLOWING = 0.01, 0.5, 1.2
# How long one look may take: the guest may be frozen, or busy.
_LOOK_TIMEOUT_S = 2.0
_LAST_WORDS_TIMEOUT_S = 10.0
_CHUNK_BYTES = 4 * 1024 * 1024
# Output beyond this is removed once it is read: it lies in the guest's memory.
_KEPT_BYTES = 64 * 1024


class Commands:
    """Thread-safe: several scripts may run at once."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._numbers = itertools.count(1)

    def run(
        self,
        generation: int,
        script: str,
        environment: Mapping[str, str],
        deadline: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """On the guest as it is since its last start, which `generation` names; if it starts anew, it is lost."""
        running = _Running(self._agent, generation, f"{_FOLDER}/{next(self._numbers)}")
        reason: Reason = ""
        try:
            running.start(script, environment, deadline)
            exit_code, reason = running.wait(deadline, cancel)
            if reason:
                running.kill()
            return Completed(exit_code, running.output("out"), running.output("err"), reason)
        except TimeoutError:
            return Completed(None, b"", b"", reason or "timed-out")
        except OSError:
            return Completed(None, b"", b"", "host-lost")


class _Running:
    def __init__(self, agent: Agent, generation: int, path: str) -> None:
        self._agent = agent
        self._generation = generation
        self._path = path
        self._pid = 0

    def _ask(self, command: str, timeout_s: float, **arguments: Any) -> Any:
        return self._agent.ask(command, arguments, timeout_s=timeout_s, generation=self._generation)

    def start(self, script: str, environment: Mapping[str, str], deadline: float) -> None:
        def ask(command: str, **arguments: Any) -> Any:
            return self._ask(command, deadline - time.monotonic(), **arguments)

        file = ask("guest-file-open", path=self._path, mode="w")
        ask("guest-file-write", handle=file, **{"buf-b64": base64.b64encode(script.encode()).decode()})
        ask("guest-file-close", handle=file)
        run = _BY_ITSELF if script.startswith("#!") else _BY_BASH
        variables = [f"{name}={value}" for name, value in (_BASE_ENVIRONMENT | dict(environment)).items()]
        arguments = ["setsid", _BUSYBOX, "sh", "-c", run, self._path]
        self._pid = ask("guest-exec", path=_BUSYBOX, arg=arguments, env=variables)["pid"]

    def wait(self, deadline: float, cancel: threading.Event | None) -> tuple[int | None, Reason]:
        pause_s = _FIRST_LOOK_S
        while (left_s := deadline - time.monotonic()) > 0:
            if _pause(min(left_s, pause_s), cancel):
                return None, "cancelled"
            pause_s = min(_LAST_LOOK_S, pause_s * _SLOWING)
            if (status := self._look()) and status["exited"]:
                return _exit_code(status), ""
        return None, "timed-out"

    def _look(self) -> Json | None:
        try:
            status: Json = self._ask("guest-exec-status", _LOOK_TIMEOUT_S, pid=self._pid)
        except TimeoutError:
            return None
        return status

    def kill(self) -> None:
        """The whole group, as the Systems Manager agent does."""
        kill = f"kill -s KILL -- -{self._pid}"
        self._ask("guest-exec", _LAST_WORDS_TIMEOUT_S, path=_BUSYBOX, arg=["sh", "-c", kill])
        deadline = time.monotonic() + _LAST_WORDS_TIMEOUT_S
        while time.monotonic() < deadline:
            if (status := self._look()) and status["exited"]:
                return
            time.sleep(_FIRST_LOOK_S)

    def output(self, stream: str) -> bytes:
        path = f"{self._path}.{stream}"
        file = self._ask("guest-file-open", _LAST_WORDS_TIMEOUT_S, path=path, mode="r")
        text = bytearray()
        while True:
            piece = self._ask("guest-file-read", _LAST_WORDS_TIMEOUT_S, handle=file, count=_CHUNK_BYTES)
            text += base64.b64decode(piece["buf-b64"])
            if piece["eof"]:
                break
        self._ask("guest-file-close", _LAST_WORDS_TIMEOUT_S, handle=file)
        if len(text) > _KEPT_BYTES:
            empty = self._ask("guest-file-open", _LAST_WORDS_TIMEOUT_S, path=path, mode="w")
            self._ask("guest-file-close", _LAST_WORDS_TIMEOUT_S, handle=empty)
        return bytes(text)


def _pause(seconds: float, cancel: threading.Event | None) -> bool:
    """True: cancelled."""
    if cancel:
        return cancel.wait(seconds)
    time.sleep(seconds)
    return False


def _exit_code(status: Json) -> int:
    """As a shell shows it."""
    return 128 + int(status["signal"]) if "signal" in status else int(status["exitcode"])
