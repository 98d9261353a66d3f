"""The network between hosts: one process that forwards IP packets after the delay that distance gives.

Every interface of a host is a TUN device inside the host's own network namespace, or the network card of a virtual
machine; only its descriptor lives here. TCP and ping therefore see the real round trip, and nothing of it outlives
the processes.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from socket import inet_aton
from time import monotonic

from local_region.hosts.base import Distances, Interface
from local_region.hosts.worker import Message, Spawner, Worker, answer, be_prompt, connect

# What a rated link holds back before it drops, like the queue of a network card.
QUEUE_S = 0.1
# Packets taken from one interface before others get their turn.
_BATCH = 16
_LARGEST_PACKET = 65_535
_DESTINATION = slice(16, 20)

# Ethernet, of virtual machines' cards. Like EC2's network it is routed: whatever address a card asks for, it is told
# the router's.
_ROUTER = bytes.fromhex("020000000001")
_ETHERNET_BYTES = 14
_TYPE = slice(12, 14)
_IPV4, _ARP = b"\x08\x00", b"\x08\x06"
_ARP_REPLY = bytes.fromhex("0001080006040002")
_ARP_SENDER, _ARP_TARGET = slice(22, 32), slice(38, 42)


@dataclass
class Port:
    """One interface, as the fabric sees it: a descriptor of IP packets."""

    address: bytes
    zone: str
    descriptor: int
    seconds_per_byte: float = 0.0
    free_at: float = 0.0
    up: bool = True

    def read(self) -> bytes | None:
        """A packet, or None where what came is none. OSError other than BlockingIOError: the host is gone."""
        return os.read(self.descriptor, _LARGEST_PACKET)

    def write(self, packet: bytes) -> None:
        # The receiving interface is down, or its host is gone: the packet is lost, as on a wire.
        with suppress(OSError):
            os.write(self.descriptor, packet)


@dataclass
class EthernetPort(Port):
    """The card of a virtual machine: a datagram socket of Ethernet frames."""

    card: bytes = b""

    def read(self) -> bytes | None:
        frame = os.read(self.descriptor, _ETHERNET_BYTES + _LARGEST_PACKET)
        if frame[_TYPE] == _IPV4:
            return frame[_ETHERNET_BYTES:]
        if frame[_TYPE] == _ARP and frame[_ARP_TARGET] != self.address:
            reply = _ARP_REPLY + _ROUTER + frame[_ARP_TARGET] + frame[_ARP_SENDER]
            self._send(_ARP, reply)
        return None

    def write(self, packet: bytes) -> None:
        self._send(_IPV4, packet)

    def _send(self, kind: bytes, data: bytes) -> None:
        with suppress(OSError):
            os.writev(self.descriptor, (self.card + _ROUTER + kind, data))


Due = tuple[float, int, Port, bytes]


class Forwarder:
    """Order is kept between any two interfaces: their delay is constant and ties leave in arrival order."""

    def __init__(self, distances: Distances) -> None:
        self.distances = distances
        self.ports: dict[bytes, Port] = {}
        self.by_descriptor: dict[int, Port] = {}
        self._cut: set[frozenset[bytes]] = set()
        self._routes: dict[tuple[bytes, bytes], tuple[Port, float] | None] = {}
        self._due: list[Due] = []
        self._sequence = 0

    def add(self, port: Port) -> None:
        if port.address in self.ports:
            os.close(port.descriptor)
            raise ValueError(f"address {'.'.join(map(str, port.address))} is already in use")
        self.ports[port.address] = port
        self.by_descriptor[port.descriptor] = port
        self._routes.clear()

    def remove(self, address: bytes) -> None:
        port = self.ports.pop(address, None)
        if port is None:
            return
        del self.by_descriptor[port.descriptor]
        # A late packet must not reach whoever gets this descriptor number next.
        self._due = sorted(packet for packet in self._due if packet[2] is not port)
        os.close(port.descriptor)
        self._routes.clear()

    def set_link(self, address: bytes, up: bool) -> None:
        if address not in self.ports:
            raise ValueError("no such interface")
        self.ports[address].up = up
        self._routes.clear()

    def set_partition(self, one: list[bytes], other: list[bytes], cut: bool) -> None:
        pairs = {frozenset((a, b)) for a in one for b in other}
        self._cut = self._cut | pairs if cut else self._cut - pairs
        self._routes.clear()

    def next_wait_s(self) -> float | None:
        return max(0.0, self._due[0][0] - monotonic()) if self._due else None

    def deliver_due(self) -> None:
        due = self._due
        while due and due[0][0] <= monotonic():
            _, _, port, packet = heappop(due)
            port.write(packet)

    def take(self, source: Port) -> None:
        """Take what an interface has sent. OSError other than BlockingIOError: its host is gone."""
        for _ in range(_BATCH):
            try:
                packet = source.read()
            except BlockingIOError:
                return
            if packet:
                self._forward(source, packet)

    def _forward(self, source: Port, packet: bytes) -> None:
        key = (source.address, packet[_DESTINATION])
        try:
            route = self._routes[key]
        except KeyError:
            route = self._routes[key] = self._route(source, key[1])
        if route is None:
            return
        port, delay_s = route
        if not delay_s and not source.seconds_per_byte:
            port.write(packet)
            return
        now = monotonic()
        if source.seconds_per_byte:
            if source.free_at > now + QUEUE_S:
                return
            source.free_at = max(now, source.free_at) + len(packet) * source.seconds_per_byte
            now = source.free_at
        self._sequence += 1
        heappush(self._due, (now + delay_s, self._sequence, port, packet))

    def _route(self, source: Port, destination: bytes) -> tuple[Port, float] | None:
        port = self.ports.get(destination)
        if port is None or not (source.up and port.up) or frozenset((source.address, destination)) in self._cut:
            return None
        same = source.zone == port.zone
        round_trip_s = self.distances.same_az_round_trip_s if same else self.distances.cross_az_round_trip_s
        return port, round_trip_s / 2


def _handle(forwarder: Forwarder, message: Message, descriptors: list[int]) -> Message:
    def addresses(name: str) -> list[bytes]:
        return [inet_aton(address) for address in message[name]]

    match message["do"]:
        case "add":
            rate = message["rate_bits_per_s"]
            per_byte = 8 / rate if rate else 0.0
            port = (inet_aton(message["address"]), message["zone"], descriptors[0], per_byte)
            card = bytes.fromhex(message["card"])
            forwarder.add(EthernetPort(*port, card=card) if card else Port(*port))
        case "remove":
            forwarder.remove(inet_aton(message["address"]))
        case "link":
            forwarder.set_link(inet_aton(message["address"]), message["up"])
        case "partition":
            forwarder.set_partition(addresses("one"), addresses("other"), message["cut"])
    return {}


def serve() -> None:
    channel, configuration = connect()
    forwarder = Forwarder(Distances(**configuration))
    be_prompt()
    while True:
        waiting_for = [channel.fileno(), *forwarder.by_descriptor]
        # select() waits in microseconds; Python's epoll rounds up to a millisecond.
        ready, _, _ = select.select(waiting_for, (), (), forwarder.next_wait_s())
        forwarder.deliver_due()
        for descriptor in ready:
            if descriptor == channel.fileno():
                try:
                    answer(channel, lambda message, fds: _handle(forwarder, message, fds))
                except EOFError:
                    return
            elif port := forwarder.by_descriptor.get(descriptor):
                try:
                    forwarder.take(port)
                except OSError:
                    forwarder.remove(port.address)


class Fabric:
    """The region's handle on the forwarding process."""

    def __init__(self, spawner: Spawner, label: str, distances: Distances) -> None:
        self.worker = Worker(spawner, __name__, label, asdict(distances))

    def connect(self, interface: Interface, zone: str, descriptor: int, card: bytes = b"") -> None:
        """Put a host's interface on the network; `card` is its Ethernet address, if it has one.

        ValueError: its address is in use.
        """
        self.worker.ask(
            {
                "do": "add",
                "address": interface.address,
                "zone": zone,
                "rate_bits_per_s": interface.rate_bits_per_s,
                "card": card.hex(),
            },
            [descriptor],
        )

    def disconnect(self, address: str) -> None:
        with suppress(ConnectionError):
            self.worker.ask({"do": "remove", "address": address})

    def set_link(self, address: str, *, up: bool) -> None:
        """Pull or replug one interface's cable. ValueError: no such interface."""
        self.worker.ask({"do": "link", "address": address, "up": up})

    def cut_off(self, interfaces: Iterable[Interface]) -> None:
        """Pull every cable of a host that loses its power: it resets no connection of its peers."""
        for interface in interfaces:
            with suppress(ValueError, ConnectionError):
                self.set_link(interface.address, up=False)

    def set_partition(self, one: Iterable[str], other: Iterable[str], *, cut: bool) -> None:
        """Drop, or carry again, what addresses of the two groups send to each other."""
        self.worker.ask({"do": "partition", "one": list(one), "other": list(other), "cut": cut})
