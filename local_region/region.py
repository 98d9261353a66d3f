"""The life of a local region: ministack run in this process, with our seams, and everything ended with it.

It listens on 127.0.0.1 alone. Modules of ministack read their environment when they are imported, so they
are imported here inside functions, after the environment is set.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qs

from local_region import identity
from local_region.hosts.base import HostDriver
from local_region.identity import ACCOUNT, REGION

if TYPE_CHECKING:
    from local_region.parts import Parts

log = logging.getLogger("local_region")

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Makes the driver of the hosts, given the directory for its files and the port of the endpoint.
MakeDriver = Callable[[Path, int], HostDriver]

ADMIN = "/_local_region/"
# ministack's own routes that others must reach: answers of custom resources and wait conditions.
_OPEN_ROUTES = ("/_ministack/cfn-response/", "/_ministack/cfn-signal/")
# Services that answer; the rest of ministack's hundred stay unloaded and are refused.
SERVICES = (
    "athena", "cloudformation", "ec2", "events", "glue", "iam", "kms", "lambda", "logs", "monitoring", "s3",
    "scheduler", "secretsmanager", "sns", "sqs", "ssm", "states", "sts", "tagging",
)  # fmt: skip


class RefusedError(RuntimeError):
    """The region cannot start; the message is one sentence for the user."""


@dataclass(frozen=True)
class Ready:
    """What a client of the region needs; printed as one JSON line."""

    endpoint: str
    region: str
    account: str
    access_key_id: str
    secret_access_key: str


@dataclass
class Region:
    """The region of this process: one at most, since the emulators keep their state in modules."""

    state: Path
    make_driver: MakeDriver
    port: int = 0
    _parts: Parts | None = None
    _failure: str = ""
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _warm: asyncio.Event = field(default_factory=asyncio.Event)

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT, the end of a piped standard input, or the end of the parent."""
        self.state.mkdir(parents=True, exist_ok=True)
        lock = _locked(self.state / "lock")
        _log_to(self.state / "region.log")
        listener = _listen(self.port)
        ready = _ready(listener.getsockname()[1])
        os.environ.update(_environment(self.state, listener.getsockname()[1], ready))
        administrator = identity.Credentials(ready.access_key_id, ready.secret_access_key)
        identity.use(identity.Clients(ready.endpoint, administrator))
        try:
            asyncio.run(self._serve(listener, ready))
        finally:
            lock.close()
        if self._failure:
            raise RefusedError(self._failure)

    async def _serve(self, listener: socket.socket, ready: Ready) -> None:
        from hypercorn.asyncio import serve  # noqa: PLC0415
        from hypercorn.config import Config  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        _on_the_end(lambda: loop.call_soon_threadsafe(self._ended.set))
        config = Config()
        config.bind = [f"fd://{listener.fileno()}"]
        config.keep_alive_timeout = 75
        config.graceful_timeout = 1
        config.accesslog = None
        config.errorlog = log
        port = listener.getsockname()[1]
        threading.Thread(target=self._warm_up, args=(loop, port), name="warm-up", daemon=True).start()
        _publish(ready, self.state / "ready.json")
        try:
            application: Any = self._app
            await serve(application, config, shutdown_trigger=self._ended.wait)
        finally:
            await asyncio.to_thread(self._tear_down)

    def _warm_up(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        """Import what takes seconds, and restore the state, while the port is already open."""
        from local_region.parts import Parts  # noqa: PLC0415

        started = time.monotonic()
        try:
            self._parts = Parts.assemble(self.state, self.make_driver, port)
        except Exception as error:
            log.exception("the region could not start")
            self._failure = f"the local region could not start: {error}"
            loop.call_soon_threadsafe(self._ended.set)
            return
        log.info("warm after %.2f s", time.monotonic() - started)
        loop.call_soon_threadsafe(self._warm.set)
        self._parts.preload()

    def _tear_down(self) -> None:
        leftovers = ["the region ended before it was warm"]
        if self._parts:
            self._parts.close()
            leftovers = self._parts.leftovers()
        log.info("ended; leftovers: %s", json.dumps(leftovers))

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        from ministack import app as ministack  # noqa: PLC0415

        if scope["type"] == "lifespan":
            # State is restored while warming up, and saved after everything has ended.
            ministack.PERSIST_STATE = False
            await ministack.app(scope, receive, send)
            return
        await self._warm.wait()
        assert self._parts
        path = scope.get("path", "")
        if path.startswith(ADMIN):
            await _answer(send, *await self._admin(path.removeprefix(ADMIN), receive))
        elif path.startswith("/_ministack/") and not path.startswith(_OPEN_ROUTES):
            await _answer(send, 404, {"message": "not part of the region"})
        elif not path.startswith(_OPEN_ROUTES) and not _signed(scope):
            # ministack takes an unsigned S3 request for the root user's.
            await _answer(send, 403, {"__type": "AccessDenied", "message": "Access Denied"})
        else:
            # The loopback interface counts as secure transport, so that TLS-only bucket policies hold.
            await ministack.app({**scope, "scheme": "https"}, receive, send)

    async def _admin(self, operation: str, receive: Receive) -> tuple[int, Any]:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        assert self._parts
        handler = self._parts.admin().get(operation)
        if handler is None:
            return 404, {"message": f"no operation {operation}"}
        try:
            request = json.loads(body or b"{}")
            # What copies the emulators' state does so on the thread that changes it.
            here = operation in self._parts.on_the_loop
            return 200, handler(request) if here else await asyncio.to_thread(handler, request)
        except ValueError as error:
            return 400, {"message": str(error)}


def _ready(port: int) -> Ready:
    return Ready(
        endpoint=f"http://127.0.0.1:{port}",
        region=REGION,
        account=ACCOUNT,
        access_key_id=f"AKIA{secrets.token_hex(8).upper()}",
        secret_access_key=secrets.token_hex(20),
    )


def _publish(ready: Ready, path: Path) -> None:
    text = json.dumps(asdict(ready))
    path.touch(mode=0o600)
    path.write_text(text)
    print(text, flush=True)


def _environment(state: Path, port: int, ready: Ready) -> Mapping[str, str]:
    temporary = state / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": ready.access_key_id,
        "AWS_SECRET_ACCESS_KEY": ready.secret_access_key,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": ready.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "MINISTACK_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": ",".join(SERVICES),
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state / "services"),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(state / "s3"),
        "TMPDIR": str(temporary),
        # Listeners and daemons that this region has no use for.
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "DOCKER_HOST": f"unix://{state / 'no-docker'}",
    }


def _locked(path: Path) -> IO[str]:
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        holder = handle.read().strip() or "unknown"
        raise RefusedError(f"another local region (process {holder}) uses {path.parent}") from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise RefusedError(f"port {port} is taken: {error.strerror}") from None
    listener.listen(1024)
    return listener


def _log_to(path: Path) -> None:
    logging.basicConfig(
        filename=path,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    for chatty in ("botocore", "boto3", "urllib3", "hypercorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _on_the_end(end: Callable[[], object]) -> None:
    """Call `end` on a signal, when the parent is gone, or when a piped standard input closes."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())
    parent = os.getppid()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        end()

    def watch_input() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        end()

    threading.Thread(target=watch_parent, name="watch-parent", daemon=True).start()
    if sys.stdin and not sys.stdin.closed and _is_pipe(sys.stdin.fileno()):
        threading.Thread(target=watch_input, name="watch-input", daemon=True).start()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _signed(scope: Scope) -> bool:
    if any(name.lower() == b"authorization" for name, _ in scope["headers"]):
        return True
    # Signature version 2 is not for buckets made after June 2020, and ministack lets it pass unread.
    return "X-Amz-Signature" in parse_qs(scope.get("query_string", b"").decode("latin-1"))


async def _answer(send: Send, status: int, body: Any) -> None:
    payload = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})
