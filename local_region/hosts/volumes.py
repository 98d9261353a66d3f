"""EBS volumes: one process a volume, an NBD server that answers as late as EBS does and as often as it allows.

A process each, so that the load on one volume does not slow another. The data is an unlinked file: it lives as
long as the region, and leaves nothing behind however the region ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic

from local_region.ebs import Bucket, Limits
from local_region.hosts.base import HostSpec, VolumeSpec
from local_region.hosts.worker import Message, Spawner, Worker, answer, be_prompt, connect

MULTI_ATTACH_HOSTS = 16
# Credits of a rate without a burst bucket: enough to make up for a late wake-up, too few to be seen.
_JITTER_S = 0.01

# https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
_MAGIC, _OPTION_MAGIC, _OPTION_REPLY_MAGIC = b"NBDMAGIC", b"IHAVEOPT", 0x0003E889045565A9
_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_OPTION_EXPORT_NAME, _OPTION_ABORT, _OPTION_INFO, _OPTION_GO = 1, 2, 6, 7
_REPLY_ACK, _REPLY_INFO, _REPLY_UNSUPPORTED = 1, 3, 0x80000001
_INFO_EXPORT, _INFO_BLOCK_SIZE = 0, 3
_HAS_FLAGS, _SEND_FLUSH, _SEND_FUA, _CAN_MULTI_CONN = 1, 4, 8, 256
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_OPTION = struct.Struct(">8sII")
_SECTOR, _LARGEST_REQUEST = 512, 32 * 1024 * 1024
_RECEIVE_BYTES = 1024 * 1024


class Pacer:
    """A token bucket, as the time at which it would be full again (generic cell rate algorithm)."""

    def __init__(self, per_s: float, credits: float) -> None:
        self.per_s = per_s
        self.depth_s = credits / per_s
        self.full_at = 0.0

    def admit(self, now: float, cost: float) -> float:
        """Take `cost` tokens; the time at which they are there."""
        at = max(now, self.full_at - self.depth_s)
        self.full_at = max(now, self.full_at) + cost / self.per_s
        return at


class Admission:
    """When a request may start, by every limit of the volume."""

    def __init__(self, limits: Limits) -> None:
        self.unit_bytes = limits.io_unit_bytes
        self.by_ios = list(_pacers(limits.iops, limits.burst, "io"))
        self.by_bytes = list(_pacers(limits.throughput_bytes_per_s, limits.burst, "byte"))

    def admit(self, now: float, size: int) -> float:
        ios = -(-size // self.unit_bytes)
        at = now
        for pacer in self.by_ios:
            at = max(at, pacer.admit(now, ios))
        for pacer in self.by_bytes:
            at = max(at, pacer.admit(now, size))
        return at


def _pacers(base: float, burst: Bucket | None, unit: str) -> Iterator[Pacer]:
    if burst is None or burst.unit != unit:
        yield Pacer(base, base * _JITTER_S)
    else:
        yield Pacer(burst.rate_per_s, burst.rate_per_s * _JITTER_S)
        yield Pacer(base, burst.credits)


@dataclass(eq=False)
class Connection:
    """A client of one host. Until it has chosen the export it negotiates."""

    socket: socket.socket
    host: str
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    flags_seen: bool = False
    no_zeroes: bool = False
    negotiated: bool = False

    def send(self, data: bytes) -> None:
        """Never blocks: a frozen client must not hold up the other hosts of a Multi-Attach volume."""
        self.unsent += data
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self.unsent[: self.socket.send(self.unsent)]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    connection: Connection
    command: int
    cookie: int
    offset: int
    length: int
    data: bytes


class Volume:
    """Requests of all clients pass one admission; each is done, and answered, one round trip after its start."""

    def __init__(self, data: int, size_bytes: int, limits: Limits, round_trip_s: float) -> None:
        self._data = data
        self._size = size_bytes
        self._admission = Admission(limits)
        self._round_trip_s = round_trip_s
        self._due: list[tuple[float, int, Request]] = []
        self._sequence = 0
        self._listeners: dict[int, tuple[socket.socket, str]] = {}
        self._connections: dict[int, Connection] = {}

    def listen(self, descriptor: int, host: str) -> None:
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        self._listeners[descriptor] = (listener, host)

    def forget(self, host: str) -> None:
        for descriptor, (listener, owner) in list(self._listeners.items()):
            if owner == host:
                listener.close()
                del self._listeners[descriptor]
        for connection in list(self._connections.values()):
            if connection.host == host:
                self._drop(connection)

    def turn(self, channel: int) -> bool:
        """Wait, then do what is due and take what has come. True: the region's channel wants attention."""
        wait_s = max(0.0, self._due[0][0] - monotonic()) if self._due else None
        blocked = [descriptor for descriptor, one in self._connections.items() if one.unsent]
        readable, writable, _ = select.select([channel, *self._listeners, *self._connections], blocked, (), wait_s)
        self._complete_due()
        for descriptor in writable:
            self._with(descriptor, Connection.flush)
        for descriptor in readable:
            if descriptor in self._listeners:
                self._accept(descriptor)
            else:
                self._with(descriptor, self._receive)
        return channel in readable

    def _with(self, descriptor: int, act: Callable[[Connection], None]) -> None:
        # A connection may have been dropped earlier in the same turn.
        if connection := self._connections.get(descriptor):
            try:
                act(connection)
            except OSError:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()

    def _accept(self, descriptor: int) -> None:
        listener, host = self._listeners[descriptor]
        with contextlib.suppress(BlockingIOError):
            client, _ = listener.accept()
            client.setblocking(False)
            connection = self._connections[client.fileno()] = Connection(client, host)
            connection.send(_MAGIC + _OPTION_MAGIC + struct.pack(">H", _FIXED_NEWSTYLE | _NO_ZEROES))

    def _receive(self, connection: Connection) -> None:
        data = connection.socket.recv(_RECEIVE_BYTES)
        if not data:
            self._drop(connection)
            return
        connection.received += data
        if connection.negotiated or self._negotiate(connection):
            self._queue(connection)

    def _negotiate(self, connection: Connection) -> bool:
        received = connection.received
        if not connection.flags_seen:
            if len(received) < 4:
                return False
            connection.no_zeroes = bool(received[3] & _NO_ZEROES)
            connection.flags_seen = True
            del received[:4]
        while len(received) >= _OPTION.size and not connection.negotiated:
            _, option, length = _OPTION.unpack_from(received)
            if len(received) < _OPTION.size + length:
                break
            del received[: _OPTION.size + length]
            self._option(connection, option)
        return connection.negotiated

    def _option(self, connection: Connection, option: int) -> None:
        """Structured replies are refused: with them a server is asked for block status before each read."""
        flags = _HAS_FLAGS | _SEND_FLUSH | _SEND_FUA | _CAN_MULTI_CONN
        export = struct.pack(">QH", self._size, flags)
        if option == _OPTION_EXPORT_NAME:
            connection.send(export + (b"" if connection.no_zeroes else bytes(124)))
            connection.negotiated = True
        elif option in (_OPTION_GO, _OPTION_INFO):
            sizes = struct.pack(">HIII", _INFO_BLOCK_SIZE, _SECTOR, 4096, _LARGEST_REQUEST)
            _reply_option(connection, option, _REPLY_INFO, struct.pack(">H", _INFO_EXPORT) + export)
            _reply_option(connection, option, _REPLY_INFO, sizes)
            _reply_option(connection, option, _REPLY_ACK)
            connection.negotiated = option == _OPTION_GO
        elif option == _OPTION_ABORT:
            _reply_option(connection, option, _REPLY_ACK)
        else:
            _reply_option(connection, option, _REPLY_UNSUPPORTED)

    def _queue(self, connection: Connection) -> None:
        received, position = connection.received, 0
        while len(received) - position >= _REQUEST.size:
            magic, _, command, cookie, offset, length = _REQUEST.unpack_from(received, position)
            if magic != _REQUEST_MAGIC or length > _LARGEST_REQUEST or command == _DISCONNECT:
                self._drop(connection)
                return
            end = position + _REQUEST.size + (length if command == _WRITE else 0)
            if end > len(received):
                break
            data = bytes(received[position + _REQUEST.size : end])
            position = end
            self._schedule(Request(connection, command, cookie, offset, length, data))
        del received[:position]

    def _schedule(self, request: Request) -> None:
        due = now = monotonic()
        # A flush is answered at once: EBS is write-through, so a kernel would not even send one.
        if request.command in (_READ, _WRITE):
            due = self._admission.admit(now, request.length) + self._round_trip_s
        self._sequence += 1
        heappush(self._due, (due, self._sequence, request))

    def _complete_due(self) -> None:
        due = self._due
        while due and due[0][0] <= monotonic():
            request = heappop(due)[2]
            error, data = self._do(request)
            try:
                request.connection.send(_REPLY.pack(_REPLY_MAGIC, error, request.cookie) + data)
            except OSError:
                self._drop(request.connection)

    def _do(self, request: Request) -> tuple[int, bytes]:
        """Errno and data. ENOSPC and EIO come from the folder of the volumes, when that is full."""
        command, offset, length = request.command, request.offset, request.length
        if command == _FLUSH:
            return 0, b""
        if command not in (_READ, _WRITE) or offset + length > self._size:
            return errno.EINVAL, b""
        try:
            if command == _READ:
                return 0, os.pread(self._data, length, offset)
            os.pwrite(self._data, request.data, offset)
        except OSError as error:
            return error.errno or errno.EIO, b""
        return 0, b""


def _reply_option(connection: Connection, option: int, kind: int, data: bytes = b"") -> None:
    header = struct.pack(">QIII", _OPTION_REPLY_MAGIC, option, kind, len(data))
    connection.send(header + data)


def _handle(volume: Volume, message: Message, descriptors: list[int]) -> None:
    if message["do"] == "attach":
        volume.listen(descriptors[0], message["host"])
    else:
        volume.forget(message["host"])


def _limits(message: Message) -> Limits:
    burst = message.pop("burst")
    return Limits(**message, burst=Bucket(**burst) if burst else None)


def serve() -> None:
    channel, configuration = connect()
    be_prompt()
    size = configuration["size_bytes"]
    with tempfile.TemporaryFile(dir=configuration["folder"]) as data:
        data.truncate(size)
        volume = Volume(data.fileno(), size, _limits(configuration["limits"]), configuration["round_trip_s"])
        with contextlib.suppress(EOFError):
            while True:
                if volume.turn(channel.fileno()):
                    answer(channel, lambda message, fds: _handle(volume, message, fds))


class VolumeProcess:
    """The region's handle on one volume. `hosts` have it, or are about to."""

    def __init__(self, spawner: Spawner, label: str, spec: VolumeSpec, folder: Path, round_trip_s: float) -> None:
        self.spec = spec
        self.hosts: set[str] = set()
        configuration = {
            "label": label,
            "size_bytes": spec.size_bytes,
            "folder": str(folder),
            "limits": asdict(spec.limits),
            "round_trip_s": round_trip_s,
        }
        self.worker = Worker(spawner, __name__, spec.volume_id, configuration)

    def listen(self, host: str, listener: int) -> None:
        self.worker.ask({"do": "attach", "host": host}, [listener])

    def forget(self, host: str) -> None:
        with contextlib.suppress(ConnectionError):
            self.worker.ask({"do": "detach", "host": host})
        self.hosts.discard(host)


class Volumes:
    """A region's volumes, and which hosts have them."""

    def __init__(self, spawner: Spawner, label: str, folder: Path, round_trip_s: float) -> None:
        self._spawner = spawner
        self._label = label
        self._folder = folder
        self._round_trip_s = round_trip_s
        self._lock = threading.Lock()
        self._volumes: dict[str, VolumeProcess] = {}

    def create(self, spec: VolumeSpec) -> None:
        with self._lock:
            if spec.volume_id in self._volumes:
                raise ValueError(f"{spec.volume_id} exists already")
            self._volumes[spec.volume_id] = VolumeProcess(
                self._spawner, self._label, spec, self._folder, self._round_trip_s
            )

    def delete(self, volume_id: str) -> None:
        with self._lock:
            volume = self._get(volume_id)
            if volume.hosts:
                raise ValueError(f"{volume_id} is attached to {', '.join(sorted(volume.hosts))}")
            del self._volumes[volume_id]
        volume.worker.close()

    def reserve(self, volume_id: str, host: HostSpec) -> VolumeProcess:
        """Note that a host is about to have the volume. ValueError says why it may not, as on EC2."""
        with self._lock:
            volume = self._get(volume_id)
            spec, hosts = volume.spec, volume.hosts
            if spec.availability_zone != host.availability_zone:
                raise ValueError(f"{volume_id} is in {spec.availability_zone}, not {host.availability_zone}")
            if host.instance_id in hosts:
                raise ValueError(f"{volume_id} is already attached to {host.instance_id}")
            if hosts and not spec.multi_attach:
                raise ValueError(f"{volume_id} is attached to {', '.join(hosts)}, and not Multi-Attach")
            if len(hosts) >= MULTI_ATTACH_HOSTS:
                raise ValueError(f"{volume_id} is attached to {MULTI_ATTACH_HOSTS} hosts, the most allowed")
            hosts.add(host.instance_id)
            return volume

    def check_attached(self, volume_id: str, host: str) -> None:
        """ValueError: the host does not have it."""
        with self._lock:
            if host not in self._get(volume_id).hosts:
                raise ValueError(f"{volume_id} is not attached to {host}")

    def detach(self, volume_id: str, host: str) -> None:
        """ValueError: the host does not have it."""
        self.check_attached(volume_id, host)
        with self._lock:
            self._get(volume_id).forget(host)

    def release(self, host: str) -> None:
        """Take all volumes from a host that is gone. Their data stays."""
        with self._lock:
            for volume in self._volumes.values():
                if host in volume.hosts:
                    volume.forget(host)

    def close(self) -> None:
        with self._lock:
            for volume in self._volumes.values():
                volume.worker.close()
            self._volumes.clear()

    def _get(self, volume_id: str) -> VolumeProcess:
        if volume_id not in self._volumes:
            raise ValueError(f"there is no volume {volume_id}")
        return self._volumes[volume_id]
