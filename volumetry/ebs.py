"""What an EBS volume may be, and the most that it can do. Figures: Amazon EBS user guide and service model."""

from dataclasses import dataclass
from typing import Literal

VolumeType = Literal["gp2", "gp3", "io1", "io2", "st1", "sc1"]

MIB = 1 << 20
GIB = 1 << 30
# One I/O as EBS counts it: SSD types split larger requests, HDD types likewise at 1 MiB.
SSD_IO_BYTES = 256 << 10
HDD_IO_BYTES = 1 << 20
GP2_CREDITS = 5_400_000
GP2_BURST_IOPS = 3000


@dataclass(frozen=True)
class TypeFacts:
    """Ranges of one volume type; ``iops`` and ``throughput_mibps`` are None where they cannot be asked for."""

    size_gib: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gib: int | None = None
    throughput_mibps: tuple[int, int] | None = None
    mibps_per_iops: float | None = None
    multi_attach: bool = False


TYPES: dict[str, TypeFacts] = {
    "gp2": TypeFacts((1, 16384)),
    "gp3": TypeFacts((1, 65536), (3000, 80000), 500, (125, 2000), 0.25),
    "io1": TypeFacts((4, 16384), (100, 64000), 50, multi_attach=True),
    "io2": TypeFacts((4, 65536), (100, 256000), 1000, multi_attach=True),
    "st1": TypeFacts((125, 16384)),
    "sc1": TypeFacts((125, 16384)),
}


@dataclass(frozen=True)
class VolumeLimits:
    """The most one volume can do: I/Os of ``io_bytes`` a second and bytes a second, with and without burst."""

    iops: float
    burst_iops: float
    throughput_bytes_per_s: float
    burst_throughput_bytes_per_s: float
    io_bytes: int
    burst_s: float | None  # how long a full bucket lasts at the burst rate; None: no bucket


def problems(kind: str, size_gib: int, iops: int | None, throughput_mibps: int | None) -> list[str]:
    """Why such a volume cannot be created, as clauses that begin with the name of the field; empty: it can."""
    facts = TYPES[kind]
    found = []
    low, high = facts.size_gib
    if not low <= size_gib <= high:
        found.append(f"size_gib: {size_gib} is not allowed; {kind} takes {low} to {high} GiB")
    found += _iops_problems(kind, facts, size_gib, iops)
    if throughput_mibps is not None:
        if facts.throughput_mibps is None:
            found.append(
                f"throughput_mibps: {throughput_mibps} is not allowed; only gp3 takes a throughput, not {kind}"
            )
        elif not facts.throughput_mibps[0] <= throughput_mibps <= facts.throughput_mibps[1]:
            span = "{} to {}".format(*facts.throughput_mibps)
            found.append(f"throughput_mibps: {throughput_mibps} is not allowed; {kind} takes {span} MiB/s")
        elif throughput_mibps > (facts.mibps_per_iops or 0) * (iops or 3000):
            found.append(
                f"throughput_mibps: {throughput_mibps} is not allowed; {kind} takes at most "
                f"{facts.mibps_per_iops} MiB/s per provisioned IOPS"
            )
    return found


def _iops_problems(kind: str, facts: TypeFacts, size_gib: int, iops: int | None) -> list[str]:
    if facts.iops is None:
        return [] if iops is None else [f"iops: {iops} is not allowed; {kind} takes no provisioned IOPS"]
    if iops is None:
        return [] if kind == "gp3" else [f"iops: is missing; {kind} needs {facts.iops[0]} to {facts.iops[1]}"]
    if not facts.iops[0] <= iops <= facts.iops[1]:
        return [f"iops: {iops} is not allowed; {kind} takes {facts.iops[0]} to {facts.iops[1]} IOPS"]
    most = max(facts.iops[0], (facts.iops_per_gib or 0) * size_gib)
    if iops > most:
        return [
            f"iops: {iops} is not allowed; {size_gib} GiB of {kind} take at most {most} IOPS "
            f"({facts.iops_per_gib} per GiB)"
        ]
    return []


def limits(kind: str, size_gib: int, iops: int | None, throughput_mibps: int | None) -> VolumeLimits:
    """What the volume can do at most; the figures a trial's ceiling is foretold from."""
    match kind:
        case "gp2":
            return _gp2(size_gib)
        case "gp3":
            rate = (throughput_mibps or 125) * MIB
            return VolumeLimits(iops or 3000, iops or 3000, rate, rate, SSD_IO_BYTES, None)
        case "io1":
            # 256 KiB per IOPS up to 500 MiB/s; beyond 32,000 IOPS 16 KiB per IOPS, up to 1,000 MiB/s.
            asked = iops or 100
            io1_rate = max(min(asked * SSD_IO_BYTES, 500 * MIB), min(asked * (16 << 10), 1000 * MIB))
            return VolumeLimits(asked, asked, io1_rate, io1_rate, SSD_IO_BYTES, None)
        case "io2":
            asked = iops or 100
            io2_rate = min(asked * 0.256, 4000) * MIB
            return VolumeLimits(asked, asked, io2_rate, io2_rate, SSD_IO_BYTES, None)
        case _:
            return _hdd(kind, size_gib)


def _gp2(size_gib: int) -> VolumeLimits:
    baseline = min(max(100, 3 * size_gib), 16000)
    rate = (128 if size_gib <= 170 else 250) * MIB
    if baseline >= GP2_BURST_IOPS:
        return VolumeLimits(baseline, baseline, rate, rate, SSD_IO_BYTES, None)
    burst_s = GP2_CREDITS / (GP2_BURST_IOPS - baseline)
    return VolumeLimits(baseline, GP2_BURST_IOPS, rate, rate, SSD_IO_BYTES, burst_s)


def _hdd(kind: str, size_gib: int) -> VolumeLimits:
    base_per_tib, burst_per_tib, base_cap, burst_cap = (40, 250, 500, 500) if kind == "st1" else (12, 80, 192, 250)
    base = min(base_per_tib * size_gib / 1024, base_cap) * MIB
    burst = min(burst_per_tib * size_gib / 1024, burst_cap) * MIB
    # The bucket holds 1 TiB of throughput credits per TiB of volume.
    burst_s = size_gib * GIB / (burst - base) if burst > base else None
    return VolumeLimits(base / HDD_IO_BYTES, burst / HDD_IO_BYTES, base, burst, HDD_IO_BYTES, burst_s)
