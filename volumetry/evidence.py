"""What a trial's raw files say: manifests and archives checked, fio's output, logs and telemetry read.

Missing stays missing: a direction without I/O has no latency, a host without a reply has no round trip.
"""

import hashlib
import io
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetry.errors import EvidenceMissing

DIRECTIONS = ("read", "write", "trim")
# fio's latency buckets: 29 groups of 64, the last bucket open (FIO_IO_U_PLAT_BITS 6, FIO_IO_U_PLAT_GROUP_NR 29).
LAST_BUCKET_LOWER_NS = (1 << 33) + 63 * (1 << 27)
US = 1000.0

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Manifest:
    """What a host says it uploaded: sizes in bytes and SHA-256 sums."""

    trial: str
    attempt: int
    host: str
    archive_sha256: str
    files: Mapping[str, str]  # name -> sha256

    @classmethod
    def parse(cls, text: bytes) -> "Manifest":
        """Raises EvidenceMissing when the text is no manifest."""
        try:
            data = json.loads(text)
            sums = {name: entry["sha256"] for name, entry in data["files"].items()}
            return cls(data["trial"], int(data["attempt"]), data["host"], data["archive"]["sha256"], sums)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EvidenceMissing(f"the manifest cannot be read: {error}") from None


def read_archive(archive: bytes, manifest: Manifest) -> dict[str, bytes]:
    """The files of a host's archive; raises EvidenceMissing unless every checksum of the manifest holds."""
    if hashlib.sha256(archive).hexdigest() != manifest.archive_sha256:
        raise EvidenceMissing(f"the archive of {manifest.host} is not the one that its manifest names")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    for name, expected in manifest.files.items():
        if hashlib.sha256(files.get(name, b"")).hexdigest() != expected:
            raise EvidenceMissing(f"{name} of {manifest.host} is not the file that its manifest names")
    return files


@dataclass
class Direction:
    """I/O of one direction, merged over jobs and hosts; latencies in nanoseconds, ``buckets`` by midpoint."""

    ios: int = 0
    io_bytes: int = 0
    iops: float = 0.0
    bw_bytes_per_s: float = 0.0
    run_s: float = 0.0
    clat_sum_ns: float = 0.0
    clat_n: int = 0
    clat_max_ns: int | None = None
    buckets: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, stats: Mapping[str, Any]) -> None:
        """Add one job's statistics of this direction, as fio's json+ gives them."""
        self.ios += stats["total_ios"]
        self.io_bytes += stats["io_bytes"]
        self.iops += stats["iops"]
        self.bw_bytes_per_s += stats["bw_bytes"]
        self.run_s = max(self.run_s, stats["runtime"] / 1000)
        # lat_percentiles=1 moves the buckets from clat_ns to lat_ns; both are then completion as the job saw it.
        clat = next((stats[key] for key in ("clat_ns", "lat_ns") if stats.get(key, {}).get("bins")), None)
        if clat is None:
            return
        self.clat_sum_ns += clat["mean"] * clat["N"]
        self.clat_n += clat["N"]
        self.clat_max_ns = max(self.clat_max_ns or 0, clat["max"])
        for midpoint, count in clat["bins"].items():
            self.buckets[int(midpoint)] += count

    def merge(self, other: "Direction") -> None:
        """Add another host's I/O: rates add up, counts add up, buckets add up."""
        self.ios += other.ios
        self.io_bytes += other.io_bytes
        self.iops += other.iops
        self.bw_bytes_per_s += other.bw_bytes_per_s
        self.run_s = max(self.run_s, other.run_s)
        self.clat_sum_ns += other.clat_sum_ns
        self.clat_n += other.clat_n
        if other.clat_max_ns is not None:
            self.clat_max_ns = max(self.clat_max_ns or 0, other.clat_max_ns)
        for midpoint, count in other.buckets.items():
            self.buckets[midpoint] += count

    @property
    def clat_mean_us(self) -> float | None:
        return self.clat_sum_ns / self.clat_n / US if self.clat_n else None

    @property
    def clat_max_us(self) -> float | None:
        return None if self.clat_max_ns is None else self.clat_max_ns / US

    def percentile_us(self, share: float) -> float | None:
        """The latency that ``share`` (0 to 1) of the I/Os do not exceed: the midpoint of the first bucket whose
        cumulative count reaches share x N; at most 0.78 % off."""
        wanted, counted = share * sum(self.buckets.values()), 0
        for midpoint in sorted(self.buckets):
            counted += self.buckets[midpoint]
            if counted >= wanted:
                return midpoint / US
        return None


def bucket_bounds_ns(midpoint: int) -> tuple[int, int | None]:
    """(lower, upper) of the fio bucket of that midpoint, in nanoseconds; upper is None for the open last one."""
    shift = max(0, midpoint.bit_length() - 7)
    lower = midpoint >> shift << shift
    return lower, (None if lower >= LAST_BUCKET_LOWER_NS else lower + (1 << shift))


@dataclass(frozen=True)
class FioResult:
    """One host's fio run: directions that did I/O, and fio's own error number (0: none)."""

    directions: Mapping[str, Direction]
    error: int
    version: str


def parse_fio(text: bytes) -> FioResult:
    """fio's json+ output, whatever notes stand before it; raises EvidenceMissing when there is none."""
    content = text.decode("utf-8", "replace")
    start = content.find("{")
    try:
        data, _ = json.JSONDecoder().raw_decode(content[max(start, 0) :])
        jobs = data["jobs"]
    except (ValueError, KeyError, TypeError):
        raise EvidenceMissing("fio wrote no result") from None
    directions: dict[str, Direction] = {}
    for job in jobs:
        for name in DIRECTIONS:
            if job.get(name, {}).get("total_ios"):
                directions.setdefault(name, Direction()).add(job[name])
    return FioResult(directions, max((job["error"] for job in jobs), default=0), data.get("fio version", ""))


@dataclass(frozen=True)
class Window:
    """One averaging window of fio's logs: rates of one direction, over all jobs of the host."""

    direction: str
    number: int  # from 0, of ``window_s`` each, from the end of ramp_time
    iops: float
    bw_bytes_per_s: float
    clat_mean_us: float | None


def parse_logs(iops: bytes, bandwidth: bytes, clat: bytes, window_s: float) -> list[Window]:
    """The rate and latency logs as windows. The last window may be shorter than the others: fio says rates.

    Jobs append to one log, each its own rows: rates add up, and a window's latency is the mean weighted by rate,
    which needs the rows of both logs to agree; where they do not, it is missing.
    """
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    widths: dict[tuple[str, int], float] = defaultdict(float)
    latencies: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in _rows(iops, window_s):
        rates[line[0]].append(line[1])
    for key, value in _rows(bandwidth, window_s):
        widths[key] += value * 1024  # the log is in KiB/s
    for key, value in _rows(clat, window_s):
        latencies[key].append(value / US)
    return [
        Window(*key, sum(values), widths[key], _weighted_mean(latencies.get(key, []), values))
        for key, values in sorted(rates.items())
    ]


def _rows(log: bytes, window_s: float) -> Iterable[tuple[tuple[str, int], float]]:
    """((direction, window), value) of each row ``time_ms, value, direction, ...``."""
    for line in log.decode("ascii", "replace").splitlines():
        time_ms, value, direction = line.split(",")[:3]
        number = max(0, round(int(time_ms) / 1000 / window_s) - 1)
        yield (DIRECTIONS[int(direction)], number), float(value)


def _weighted_mean(values: list[float], weights: list[float]) -> float | None:
    if not values or len(values) != len(weights) or sum(weights) == 0:
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


@dataclass(frozen=True)
class Sample:
    """One reading of a host's counters, at ``time_s`` (Unix time); CPU in clock ticks over all processors."""

    time_s: float
    user: int
    system: int
    idle: int
    iowait: int
    steal: int
    rx_bytes: int
    tx_bytes: int
    memory_used_bytes: int | None

    @property
    def ticks(self) -> int:
        return self.user + self.system + self.idle + self.iowait + self.steal


def parse_telemetry(text: bytes) -> list[Sample]:
    """The samples in order of time; a sample that was cut short is left out."""
    samples = []
    for block in re.split(r"^time ", text.decode("ascii", "replace"), flags=re.MULTILINE)[1:]:
        lines = block.splitlines()
        cpu = next((line.split()[1:] for line in lines if line.startswith("cpu ")), None)
        if cpu is None:
            continue
        # user nice system idle iowait irq softirq steal (proc(5))
        ticks = [int(value) for value in cpu[:8]]
        memory = {name: int(value) * 1024 for name, value in re.findall(r"^(Mem\w+): +(\d+)", block, re.MULTILINE)}
        links = [line.split(":")[1].split() for line in lines if re.match(r" *(ens|eth|enp)\d", line)]
        samples.append(
            Sample(
                time_s=float(lines[0]),
                user=ticks[0] + ticks[1],
                system=ticks[2] + ticks[5] + ticks[6],
                idle=ticks[3],
                iowait=ticks[4],
                steal=ticks[7],
                rx_bytes=sum(int(link[0]) for link in links),
                tx_bytes=sum(int(link[8]) for link in links),
                memory_used_bytes=memory["MemTotal"] - memory["MemAvailable"] if len(memory) > 1 else None,
            )
        )
    return samples


@dataclass(frozen=True)
class Usage:
    """A host between two samples: shares in per cent of all its processors, rates in bytes a second."""

    start_s: float
    seconds: float
    user_pct: float
    system_pct: float
    iowait_pct: float
    steal_pct: float
    rx_bytes_per_s: float
    tx_bytes_per_s: float
    memory_used_bytes: int | None

    @property
    def cpu_pct(self) -> float:
        return self.user_pct + self.system_pct


def usage(first: Sample, last: Sample) -> Usage | None:
    """What happened between two samples, or None when no time passed on the host's clock."""
    ticks, seconds = last.ticks - first.ticks, last.time_s - first.time_s
    if ticks <= 0 or seconds <= 0:
        return None

    def share(name: str) -> float:
        spent: int = getattr(last, name) - getattr(first, name)
        return 100 * max(0, spent) / ticks

    return Usage(
        start_s=first.time_s,
        seconds=seconds,
        user_pct=share("user"),
        system_pct=share("system"),
        iowait_pct=share("iowait"),
        steal_pct=share("steal"),
        rx_bytes_per_s=(last.rx_bytes - first.rx_bytes) / seconds,
        tx_bytes_per_s=(last.tx_bytes - first.tx_bytes) / seconds,
        memory_used_bytes=last.memory_used_bytes,
    )


def parse_facts(text: bytes) -> dict[str, str]:
    """``KEY=VALUE`` lines; a key that comes again replaces the first."""
    return dict(line.split("=", 1) for line in text.decode("utf-8", "replace").splitlines() if "=" in line)


@dataclass(frozen=True)
class HostEvidence:
    """Everything one host uploaded for one attempt; times are Unix times in seconds."""

    facts: Mapping[str, str]
    fio: FioResult | None
    windows: list[Window]
    samples: list[Sample]

    @property
    def ended_s(self) -> float | None:
        return float(self.facts["ended"]) if "ended" in self.facts else None

    @property
    def rtt_us(self) -> list[float]:
        """Mean round trip to each other host that answered."""
        return [float(value) * 1000 for key, value in self.facts.items() if key.startswith("rtt_ms.")]


def read_host(files: Files, window_s: float) -> HostEvidence:
    """One host's files, read; raises EvidenceMissing when a client's fio left no result."""
    facts = parse_facts(files.get("facts", b""))
    client = "started" in facts
    iops, bandwidth, clat = (files.get(f"log_{name}.log", b"") for name in ("iops", "bw", "clat"))
    return HostEvidence(
        facts=facts,
        fio=parse_fio(files.get("fio.json", b"")) if client else None,
        windows=parse_logs(iops, bandwidth, clat, window_s) if client else [],
        samples=parse_telemetry(files.get("telemetry", b"")),
    )
