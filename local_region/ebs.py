"""The limits that EBS enforces on a volume, by its type. Source: Amazon EBS User Guide, volume types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB = 1024
MIB = 1024 * KIB
TIB_IN_GIB = 1024


@dataclass(frozen=True)
class Bucket:
    """Credits, full at the start, that lift a rate to `rate_per_s` until they are spent.

    They refill at the volume's base rate, so a full bucket lasts credits / (rate_per_s - base) seconds.
    """

    unit: Literal["io", "byte"]
    rate_per_s: float
    credits: float


@dataclass(frozen=True)
class Limits:
    """Sustained limits; `io_unit_bytes` is the size up to which a request counts as one I/O."""

    iops: int
    throughput_bytes_per_s: int
    burst: Bucket | None
    io_unit_bytes: int


@dataclass(frozen=True)
class _Provisioned:
    """SSD types with provisioned IOPS. `throughput` is None where it cannot be chosen."""

    size_gib: range
    iops: range
    iops_per_gib: int
    throughput_mibps: range | None = None


_PROVISIONED = {
    "gp3": _Provisioned(range(1, 65_537), range(3_000, 80_001), 500, range(125, 2_001)),
    "io1": _Provisioned(range(4, 16_385), range(100, 64_001), 50),
    "io2": _Provisioned(range(4, 65_537), range(100, 256_001), 1_000),
}
_GP2_SIZE_GIB = range(1, 16_385)
_HDD_SIZE_GIB = range(125, 16_385)
# MiB/s per TiB, base and burst, and the cap of a volume.
_HDD = {"st1": (40, 250, 500), "sc1": (12, 80, 250)}
TYPES = ("gp2", *_PROVISIONED, *_HDD)


def limits(volume_type: str, size_gib: int, iops: int | None = None, throughput_mibps: int | None = None) -> Limits:
    """Limits of a volume as CreateVolume would make it. ValueError says why EC2 would refuse it."""
    if volume_type in _PROVISIONED:
        return _provisioned(volume_type, size_gib, iops, throughput_mibps)
    if volume_type not in TYPES:
        raise ValueError(f"volume type {volume_type!r} is not one of {', '.join(TYPES)}")
    if iops is not None or throughput_mibps is not None:
        raise ValueError(f"{volume_type} takes neither IOPS nor throughput: they follow from its size")
    return _gp2(size_gib) if volume_type == "gp2" else _hdd(volume_type, size_gib)


def _provisioned(volume_type: str, size_gib: int, iops: int | None, throughput_mibps: int | None) -> Limits:
    allowed = _PROVISIONED[volume_type]
    _within(f"{volume_type} size", size_gib, allowed.size_gib, "GiB")
    if iops is None and volume_type != "gp3":
        raise ValueError(f"{volume_type} needs its IOPS stated")
    iops = allowed.iops.start if iops is None else iops
    _within(f"{volume_type} IOPS", iops, allowed.iops, "IOPS")
    # gp3's 3,000 come with every size; the ratio holds for what is provisioned above them.
    most = max(allowed.iops.start, allowed.iops_per_gib * size_gib)
    if iops > most:
        raise ValueError(
            f"{iops} IOPS on {size_gib} GiB of {volume_type}: at most {allowed.iops_per_gib} per GiB, here {most}"
        )
    throughput = _throughput(volume_type, iops, throughput_mibps, allowed.throughput_mibps)
    return Limits(iops, throughput, None, 256 * KIB)


def _throughput(volume_type: str, iops: int, asked_mibps: int | None, allowed: range | None) -> int:
    """Bytes/s. gp3 is told; io1 gives 256 KiB an I/O to 500 MiB/s, then 16 KiB; io2 0.256 MiB/s an IOPS."""
    if allowed is None and asked_mibps is not None:
        raise ValueError(f"{volume_type} takes no throughput: it follows from its IOPS")
    if volume_type == "io1":
        return min(iops * 256 * KIB, max(500 * MIB, iops * 16 * KIB))
    if volume_type == "io2":
        return round(min(0.256 * iops, 4_000) * MIB)
    assert allowed is not None
    asked = allowed.start if asked_mibps is None else asked_mibps
    _within("gp3 throughput", asked, allowed, "MiB/s")
    if asked > 0.25 * iops:
        raise ValueError(f"{asked} MiB/s on {iops} IOPS of gp3: at most 0.25 MiB/s per IOPS")
    return asked * MIB


def _gp2(size_gib: int) -> Limits:
    _within("gp2 size", size_gib, _GP2_SIZE_GIB, "GiB")
    iops = min(16_000, max(100, 3 * size_gib))
    burst = Bucket("io", 3_000, 5_400_000) if iops < 3_000 else None
    # From 171 to 333 GiB 250 MiB/s last only as long as the I/O credits; that second bucket is left out.
    throughput = (128 if size_gib <= 170 else 250) * MIB
    return Limits(iops, throughput, burst, 256 * KIB)


def _hdd(volume_type: str, size_gib: int) -> Limits:
    _within(f"{volume_type} size", size_gib, _HDD_SIZE_GIB, "GiB")
    base, burst, cap = (rate * MIB for rate in _HDD[volume_type])
    base_rate = min(cap, base * size_gib // TIB_IN_GIB)
    burst_rate = min(cap, burst * size_gib // TIB_IN_GIB)
    # The bucket holds one TiB of credits for each TiB of the volume.
    bucket = Bucket("byte", burst_rate, size_gib * KIB * MIB) if burst_rate > base_rate else None
    return Limits(cap // MIB, base_rate, bucket, MIB)


def _within(what: str, value: int, allowed: range, unit: str) -> None:
    if value not in allowed:
        raise ValueError(f"{what} {value} is outside {allowed.start} to {allowed.stop - 1} {unit}")
