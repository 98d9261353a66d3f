"""Operations and their latencies, in fio's own buckets: what can be added over jobs, hosts and tools."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

# fio's latency buckets: 29 groups of 64, the last bucket open (FIO_IO_U_PLAT_BITS 6, FIO_IO_U_PLAT_GROUP_NR 29).
LAST_BUCKET_LOWER_NS = (1 << 33) + 63 * (1 << 27)
LAST_BUCKET_MIDPOINT_NS = LAST_BUCKET_LOWER_NS + (1 << 26)
US = 1000.0


def bucket_bounds_ns(midpoint: int) -> tuple[int, int | None]:
    """(lower, upper) of the fio bucket of that midpoint, in nanoseconds; upper is None for the open last one."""
    shift = max(0, midpoint.bit_length() - 7)
    lower = midpoint >> shift << shift
    return lower, (None if lower >= LAST_BUCKET_LOWER_NS else lower + (1 << shift))


def bucket_midpoint_ns(latency_ns: int) -> int:
    """The midpoint by which fio names the bucket of a latency."""
    if latency_ns >= LAST_BUCKET_LOWER_NS:
        return LAST_BUCKET_MIDPOINT_NS
    shift = max(0, latency_ns.bit_length() - 7)
    return (latency_ns >> shift << shift) + (1 << shift >> 1)


class Operation(NamedTuple):
    """One completed operation: ``at_s`` is Unix time."""

    at_s: float
    latency_ns: int
    direction: str
    io_bytes: int


@dataclass
class Direction:
    """Operations of one direction, merged over jobs and hosts; latencies in nanoseconds, ``buckets`` by midpoint.

    ``ios`` and ``iops`` are None where a tool counts bytes alone. ``each_ns`` holds every latency where a tool tells
    them all: percentiles are then exact.
    """

    ios: int | None = None
    io_bytes: int = 0
    iops: float | None = None
    bw_bytes_per_s: float = 0.0
    run_s: float = 0.0
    clat_sum_ns: float = 0.0
    clat_n: int = 0
    clat_max_ns: int | None = None
    buckets: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    each_ns: list[int] = field(default_factory=list)

    def add_latencies(self, latencies_ns: Iterable[int]) -> None:
        """Count every one of these."""
        for latency in latencies_ns:
            self.each_ns.append(latency)
            self.clat_sum_ns += latency
            self.clat_n += 1
            self.clat_max_ns = max(self.clat_max_ns or 0, latency)
            self.buckets[bucket_midpoint_ns(latency)] += 1

    def merge(self, other: "Direction") -> None:
        """Add another host's operations: rates add up, counts add up, buckets add up."""
        if other.ios is not None:
            self.ios = (self.ios or 0) + other.ios
        if other.iops is not None:
            self.iops = (self.iops or 0.0) + other.iops
        self.io_bytes += other.io_bytes
        self.bw_bytes_per_s += other.bw_bytes_per_s
        self.run_s = max(self.run_s, other.run_s)
        self.clat_sum_ns += other.clat_sum_ns
        self.clat_n += other.clat_n
        if other.clat_max_ns is not None:
            self.clat_max_ns = max(self.clat_max_ns or 0, other.clat_max_ns)
        for midpoint, count in other.buckets.items():
            self.buckets[midpoint] += count
        self.each_ns += other.each_ns

    @property
    def clat_mean_us(self) -> float | None:
        return self.clat_sum_ns / self.clat_n / US if self.clat_n else None

    @property
    def clat_max_us(self) -> float | None:
        return None if self.clat_max_ns is None else self.clat_max_ns / US

    def percentile_us(self, share: float) -> float | None:
        """The latency that ``share`` (0 to 1) of the operations do not exceed: exact where each is known, else the
        midpoint of the first bucket whose cumulative count reaches share x N, at most 0.78 % off."""
        total = sum(self.buckets.values())
        if total and len(self.each_ns) == total:
            return sorted(self.each_ns)[max(0, ceil(share * total) - 1)] / US
        counted = 0
        for midpoint in sorted(self.buckets):
            counted += self.buckets[midpoint]
            if counted >= share * total:
                return midpoint / US
        return None


@dataclass(frozen=True)
class Window:
    """A stretch of the measured part: rates of one direction, over all jobs of the host. ``iops`` None: not told."""

    direction: str
    number: int  # from 0, of ``window_s`` each
    iops: float | None
    bw_bytes_per_s: float
    clat_mean_us: float | None


def windows_of(operations: Iterable[Operation], began_s: float, window_s: float) -> list[Window]:
    """Operations told one by one, as windows from ``began_s``; a window in which nothing completed is left out."""
    parts: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for operation in operations:
        parts[operation.direction, max(0, int((operation.at_s - began_s) / window_s))].append(operation)
    return [
        Window(
            *key,
            iops=len(part) / window_s,
            bw_bytes_per_s=sum(operation.io_bytes for operation in part) / window_s,
            clat_mean_us=sum(operation.latency_ns for operation in part) / len(part) / US,
        )
        for key, part in sorted(parts.items())
    ]


@dataclass(frozen=True)
class Load:
    """What one host's tool measured: directions that did something, and the tool's own error number (0: none)."""

    directions: dict[str, Direction]
    error: int = 0
    windows: list[Window] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)  # one by one, in order of time, where the tool tells them
    tps_with_connections: float | None = None
    failed: int | None = None  # operations that the tool gave up, where it counts them

    @property
    def began_s(self) -> float | None:
        """Unix time of the first operation's start, where operations are told one by one."""
        return min((one.at_s - one.latency_ns / 1e9 for one in self.operations), default=None)
