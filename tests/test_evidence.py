"""Evidence reads as what the tools wrote: real files of fio 3.33, captured on process hosts."""

import io
import json
import math
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetry.errors import EvidenceMissing
from volumetry.evidence import (
    LAST_BUCKET_LOWER_NS,
    Direction,
    Manifest,
    bucket_bounds_ns,
    parse_fio,
    parse_logs,
    parse_telemetry,
    read_archive,
    read_host,
    usage,
)

DATA = Path(__file__).parent / "data"
CLIENT = {path.name: path.read_bytes() for path in (DATA / "fio-3.33-randrw").iterdir()}
# The nbd engine writes a note before the document.
RAW = json.loads(CLIENT["fio.json"][CLIENT["fio.json"].index(b"{") :])
PEER = {path.name: path.read_bytes() for path in (DATA / "peer-telemetry").iterdir()}


def test_fio_reads_as_it_wrote() -> None:
    raw = RAW["jobs"][0]
    found = parse_fio(CLIENT["fio.json"])
    assert set(found.directions) == {"read", "write"}
    for name, direction in found.directions.items():
        assert direction.ios == raw[name]["total_ios"]
        assert direction.iops == raw[name]["iops"]
        assert direction.run_s == raw[name]["runtime"] / 1000
        assert sum(direction.buckets.values()) == raw[name]["clat_ns"]["N"]
        assert direction.clat_mean_us == pytest.approx(raw[name]["clat_ns"]["mean"] / 1000)


@pytest.mark.parametrize(("share", "key"), [(0.5, "50.000000"), (0.99, "99.000000"), (0.999, "99.900000")])
def test_percentiles_agree_with_fios_own(share: float, key: str) -> None:
    raw = RAW["jobs"][0]
    for name, direction in parse_fio(CLIENT["fio.json"]).directions.items():
        own_us = raw[name]["clat_ns"]["percentile"][key] / 1000
        assert direction.percentile_us(share) == pytest.approx(own_us, rel=0.0079)


def test_notes_before_the_json_do_no_harm() -> None:
    assert parse_fio(json.dumps(RAW).encode()) == parse_fio(CLIENT["fio.json"])


@pytest.mark.parametrize("text", [b"", b"fio: bad option\n", b"{", b'{"jobs"', CLIENT["fio.json"][:500]])
def test_what_fio_never_finished_is_missing(text: bytes) -> None:
    with pytest.raises(EvidenceMissing):
        parse_fio(text)


def test_directions_without_io_have_no_latency() -> None:
    idle = Direction()
    assert (idle.clat_mean_us, idle.clat_max_us, idle.percentile_us(0.5)) == (None, None, None)


def test_hosts_are_merged_by_their_buckets() -> None:
    """One host ten times slower: the merged p99 is the slow host's; the mean of both would say half."""
    fast, slow = Direction(), Direction()
    fast.buckets.update({1000: 90})
    slow.buckets.update({100_000: 10})
    fast.merge(slow)
    assert fast.percentile_us(0.5) == 1.0
    assert fast.percentile_us(0.99) == 100.0


def lower_ns(index: int) -> int:
    """The lower bound of fio's bucket by the formula of its source (stat.c, plat_idx_to_val)."""
    if index < 128:
        return index
    error_bits = (index >> 6) - 1
    return (1 << (error_bits + 6)) + ((index % 64) << error_bits)


@given(st.integers(0, 29 * 64 - 1))
def test_bounds_are_those_of_fios_buckets(index: int) -> None:
    lower = lower_ns(index)
    width = lower_ns(index + 1) - lower if index < 29 * 64 - 1 else None
    midpoint = lower + (width or 1 << 27) // 2
    found = bucket_bounds_ns(midpoint)
    assert found == (lower, None if lower >= LAST_BUCKET_LOWER_NS else lower + (width or 0))


def test_every_bucket_of_a_real_run_holds_its_midpoint() -> None:
    for direction in parse_fio(CLIENT["fio.json"]).directions.values():
        for midpoint in direction.buckets:
            lower, upper = bucket_bounds_ns(midpoint)
            assert lower <= midpoint < (upper or math.inf)


def test_logs_sum_up_to_what_fio_says() -> None:
    windows = parse_logs(CLIENT["log_iops.log"], CLIENT["log_bw.log"], CLIENT["log_clat.log"], 0.2)
    for name, direction in parse_fio(CLIENT["fio.json"]).directions.items():
        ours = [window for window in windows if window.direction == name]
        assert [window.number for window in ours] == list(range(15))
        assert sum(window.iops for window in ours) * 0.2 == pytest.approx(direction.ios, rel=0.05)
        assert sum(window.bw_bytes_per_s for window in ours) * 0.2 == pytest.approx(direction.io_bytes, rel=0.05)
        mean_us = sum(window.clat_mean_us * window.iops for window in ours) / sum(window.iops for window in ours)
        assert mean_us == pytest.approx(direction.clat_mean_us, rel=0.05)


def test_jobs_in_one_log_add_up() -> None:
    iops = b"999, 500, 0, 0, 0\n1999, 500, 0, 0, 0\n999, 700, 0, 0, 0\n2000, 300, 0, 0, 0\n"
    clat = b"1000, 10000, 0, 0, 0\n2000, 10000, 0, 0, 0\n1000, 20000, 0, 0, 0\n2000, 20000, 0, 0, 0\n"
    first, second = parse_logs(iops, b"", clat, 1.0)
    assert (first.iops, second.iops) == (1200, 800)
    assert first.clat_mean_us == pytest.approx((500 * 10 + 700 * 20) / 1200)


def test_telemetry_reads_as_shares_of_the_host() -> None:
    samples = parse_telemetry(CLIENT["telemetry"])
    assert len(samples) >= 4
    whole = usage(samples[0], samples[-1])
    assert whole is not None
    assert 0 < whole.cpu_pct < 100
    assert whole.memory_used_bytes is not None
    assert usage(samples[0], samples[0]) is None


def test_a_sample_cut_short_is_left_out() -> None:
    whole = parse_telemetry(PEER["telemetry"])
    assert parse_telemetry(PEER["telemetry"] + b"time 1795234775.0\n") == whole


def test_a_peer_has_telemetry_and_no_fio() -> None:
    peer = read_host(PEER, 0.2)
    assert peer.fio is None
    assert peer.samples
    assert all(rtt > 0 for rtt in peer.rtt_us)


def test_a_client_without_a_result_is_missing() -> None:
    with pytest.raises(EvidenceMissing):
        read_host({name: content for name, content in CLIENT.items() if name != "fio.json"}, 0.2)


def packed(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def manifest(archive: bytes, files: dict[str, bytes]) -> bytes:
    sums = {name: {"bytes": len(content), "sha256": sha256(content).hexdigest()} for name, content in files.items()}
    entry = {"bytes": len(archive), "sha256": sha256(archive).hexdigest()}
    return json.dumps(
        {"version": 1, "trial": "t", "attempt": 1, "host": "host1", "archive": entry, "files": sums}
    ).encode()


def test_an_archive_that_fits_its_manifest_is_read() -> None:
    archive = packed(CLIENT)
    assert read_archive(archive, Manifest.parse(manifest(archive, CLIENT))) == CLIENT


def test_an_archive_that_was_changed_is_refused() -> None:
    archive = packed(CLIENT)
    with pytest.raises(EvidenceMissing, match="is not the one"):
        read_archive(archive[:-1] + b"x", Manifest.parse(manifest(archive, CLIENT)))


def test_a_file_that_was_changed_is_refused() -> None:
    changed = packed(CLIENT | {"facts": b"host=host9\n"})
    with pytest.raises(EvidenceMissing, match="facts of host1"):
        read_archive(changed, Manifest.parse(manifest(changed, CLIENT)))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"trial": "t"}', b'{"files": 3}'])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(EvidenceMissing):
        Manifest.parse(text)
