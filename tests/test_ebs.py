"""The limits of EBS volumes, held against the figures of the EBS User Guide."""

import pytest

from local_region.ebs import MIB, TYPES, Limits, limits


@pytest.mark.parametrize(
    ("size_gib", "iops", "throughput_mibps"),
    [(1, 100, 128), (33, 100, 128), (34, 102, 128), (170, 510, 128), (334, 1002, 250), (16_384, 16_000, 250)],
)
def test_gp2_follows_from_size(size_gib: int, iops: int, throughput_mibps: int) -> None:
    found = limits("gp2", size_gib)
    assert (found.iops, found.throughput_bytes_per_s) == (iops, throughput_mibps * MIB)


def test_gp2_bursts_to_3000_for_as_long_as_the_guide_says() -> None:
    burst = limits("gp2", 100).burst
    assert burst is not None
    assert (burst.unit, burst.rate_per_s) == ("io", 3_000)
    assert burst.credits / (burst.rate_per_s - 300) == 2_000


def test_gp2_of_a_tebibyte_needs_no_burst() -> None:
    assert limits("gp2", 999).burst is not None
    assert limits("gp2", 1_000).burst is None


def test_gp3_gives_its_base_at_every_size() -> None:
    assert limits("gp3", 1) == Limits(3_000, 125 * MIB, None, 256 * 1024)


def test_gp3_of_today_reaches_80000_iops_and_2000_mibps() -> None:
    found = limits("gp3", 160, 80_000, 2_000)
    assert (found.iops, found.throughput_bytes_per_s) == (80_000, 2_000 * MIB)


@pytest.mark.parametrize(
    ("volume_type", "iops", "throughput_mibps"),
    [
        ("io1", 1_000, 250),
        ("io1", 2_000, 500),
        ("io1", 32_000, 500),
        ("io1", 64_000, 1_000),
        ("io2", 1_000, 256),
        ("io2", 16_000, 4_000),
        ("io2", 64_000, 4_000),
    ],
)
def test_provisioned_iops_bring_throughput(volume_type: str, iops: int, throughput_mibps: float) -> None:
    found = limits(volume_type, 4_000, iops)
    assert found.iops == iops
    assert found.throughput_bytes_per_s == throughput_mibps * MIB


@pytest.mark.parametrize(("volume_type", "base", "burst"), [("st1", 40, 250), ("sc1", 12, 80)])
def test_hdd_throughput_follows_from_size(volume_type: str, base: int, burst: int) -> None:
    found = limits(volume_type, 1_024)
    assert found.throughput_bytes_per_s == base * MIB
    assert found.io_unit_bytes == MIB
    assert found.burst is not None
    assert (found.burst.unit, found.burst.rate_per_s) == ("byte", burst * MIB)
    assert found.burst.credits == 1_024 * 1_024 * MIB


def test_a_large_st1_is_at_its_cap_without_bursting() -> None:
    found = limits("st1", 16_384)
    assert found.throughput_bytes_per_s == 500 * MIB
    assert found.burst is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gp4", 1), "is not one of gp2, gp3"),
        (("gp2", 0), "gp2 size 0 is outside 1 to 16384 GiB"),
        (("gp2", 10, 100), "takes neither IOPS nor throughput"),
        (("gp3", 10, 6_000), "at most 500 per GiB, here 5000"),
        (("gp3", 10, 2_999), "outside 3000 to 80000"),
        (("gp3", 1_000, 3_000, 751), r"at most 0\.25 MiB/s per IOPS"),
        (("gp3", 1_000, 80_000, 2_001), "outside 125 to 2000"),
        (("io1", 10), "needs its IOPS stated"),
        (("io1", 10, 501), "at most 50 per GiB, here 500"),
        (("io2", 4, 4_001), "at most 1000 per GiB"),
        (("io2", 4, 4_000, 500), "takes no throughput"),
        (("st1", 124), "outside 125 to 16384"),
    ],
)
def test_impossible_volumes_are_refused_with_the_reason(arguments: tuple[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        limits(*arguments)


@pytest.mark.parametrize("volume_type", TYPES)
def test_no_type_counts_less_than_a_page_as_more_than_one_io(volume_type: str) -> None:
    iops = 100 if volume_type in ("io1", "io2") else None
    found = limits(volume_type, 500, iops)
    assert found.io_unit_bytes in (256 * 1024, MIB)
    assert found.iops > 0
