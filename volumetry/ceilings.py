"""What a trial can reach at most, foretold from the limits of volume and instance, and which limit a result sat on."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from volumetry import ebs, fio
from volumetry.spec import STACKS, Load, Topology

# A limit is enforced with some slack, and the end of a run is cut; EBS documents 90 % of the provisioned IOPS
# 99 % of the time for gp3 and io1, so a result within 5 % of a limit is taken to sit on it.
TOLERANCE = 0.05


@dataclass(frozen=True)
class InstanceFacts:
    """EBS and network limits of an instance type, from EC2's DescribeInstanceTypes; None: not known."""

    ebs_baseline_iops: float | None = None
    ebs_maximum_iops: float | None = None
    ebs_baseline_bytes_per_s: float | None = None
    ebs_maximum_bytes_per_s: float | None = None
    network_baseline_bytes_per_s: float | None = None
    network_peak_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Ceiling:
    """One limit, as the IOPS of the load (reads and writes together) at which it is reached."""

    cause: str
    iops: float


@dataclass(frozen=True)
class Pattern:
    """The I/O of a load, as far as limits are concerned."""

    block_bytes: int
    write_share: float | None  # of all I/Os, 0 to 1; None: jobs differ

    @classmethod
    def of(cls, load: Load) -> "Pattern | None":
        """The load's pattern, or None where its block size varies."""
        rw, block = load.option("rw"), load.option("bs", "4k")
        if block is None or any("bsrange" in o or "bssplit" in o for _, o in load.sections):
            return None
        try:
            block_bytes = fio.parse_size_bytes(block)
        except ValueError:
            return None
        if rw in ("rw", "readwrite", "randrw"):
            reads = load.option("rwmixread", "50")
            return cls(block_bytes, None if reads is None else 1 - int(reads) / 100)
        if rw is None:
            return cls(block_bytes, None)
        return cls(block_bytes, 0.0 if rw.endswith("read") else 1.0)


def ceilings(topology: Topology, load: Load, instance: InstanceFacts) -> list[Ceiling]:
    """Every known limit of the trial, lowest first; empty where the load's block size is not one."""
    pattern = Pattern.of(load)
    if pattern is None:
        return []
    found = [*_volume(topology, pattern), *_instance(instance, pattern)]
    if STACKS[topology.stack].mirror:
        found += _network(instance, pattern)
    return sorted(found, key=lambda ceiling: (ceiling.iops, ceiling.cause))


def _volume(topology: Topology, pattern: Pattern) -> Iterable[Ceiling]:
    volume = topology.volume
    limit = ebs.limits(volume.type, volume.size_gib, volume.iops, volume.throughput_mibps)
    units = math.ceil(pattern.block_bytes / limit.io_bytes)
    yield Ceiling("volume IOPS", limit.iops / units)
    yield Ceiling("volume throughput", limit.throughput_bytes_per_s / pattern.block_bytes)
    if limit.burst_iops > limit.iops:
        yield Ceiling("volume burst IOPS", limit.burst_iops / units)
    if limit.burst_throughput_bytes_per_s > limit.throughput_bytes_per_s:
        yield Ceiling("volume burst throughput", limit.burst_throughput_bytes_per_s / pattern.block_bytes)


def _instance(instance: InstanceFacts, pattern: Pattern) -> Iterable[Ceiling]:
    for cause, iops in (
        ("instance EBS IOPS", instance.ebs_maximum_iops),
        ("instance EBS baseline IOPS", instance.ebs_baseline_iops),
    ):
        if iops is not None:
            yield Ceiling(cause, iops)
    for cause, rate in (
        ("instance EBS throughput", instance.ebs_maximum_bytes_per_s),
        ("instance EBS baseline throughput", instance.ebs_baseline_bytes_per_s),
    ):
        if rate is not None:
            yield Ceiling(cause, rate / pattern.block_bytes)


def _network(instance: InstanceFacts, pattern: Pattern) -> Iterable[Ceiling]:
    """Only writes cross the network: a mirror reads from its local leg. How many there are must be known."""
    if not pattern.write_share:
        return
    for cause, rate in (
        ("instance network", instance.network_peak_bytes_per_s),
        ("instance network baseline", instance.network_baseline_bytes_per_s),
    ):
        if rate is not None:
            yield Ceiling(cause, rate / (pattern.block_bytes * pattern.write_share))


def sat_on(iops: float, known: Iterable[Ceiling]) -> Ceiling | None:
    """The limit that a result of ``iops`` sat on: the nearest within TOLERANCE, or None."""
    near = [c for c in known if abs(iops - c.iops) <= TOLERANCE * c.iops]
    return min(near, key=lambda c: abs(iops - c.iops), default=None)
