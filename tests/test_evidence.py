"""Evidence reads as what the tools wrote: real files of fio 3.33, captured on process hosts."""

import io
import json
import math
import tarfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetry.errors import EvidenceMissing
from volumetry.evidence import (
    Direction,
    Manifest,
    bucket_bounds_ns,
    bucket_midpoint_ns,
    parse_telemetry,
    read_archive,
    read_host,
    usage,
)
from volumetry.evidence.dbench import parse_dbench
from volumetry.evidence.failure import parse_events, parse_verification
from volumetry.evidence.fio import parse_fio, parse_logs, parse_operations
from volumetry.evidence.latency import LAST_BUCKET_LOWER_NS
from volumetry.evidence.pgbench import parse_pgbench

DATA = Path(__file__).parent / "data"


def sample(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (DATA / name).iterdir()}


CLIENT = sample("fio-3.33-randrw")
# The nbd engine writes a note before the document.
RAW = json.loads(CLIENT["fio.json"][CLIENT["fio.json"].index(b"{") :])
PEER = sample("peer-telemetry")
PGBENCH = sample("pgbench-15")
DBENCH = sample("dbench-4.00")["dbench.out"]


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


@given(st.integers(0, 1 << 35))
def test_a_latency_falls_into_the_bucket_that_holds_it(latency: int) -> None:
    lower, upper = bucket_bounds_ns(bucket_midpoint_ns(latency))
    assert lower <= latency < (upper or math.inf)


def test_our_buckets_are_those_that_fio_fills() -> None:
    for direction in parse_fio(CLIENT["fio.json"]).directions.values():
        for midpoint in direction.buckets:
            assert bucket_midpoint_ns(bucket_bounds_ns(midpoint)[0]) == midpoint


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


# pgbench and dbench.

LOGS = [PGBENCH[name] for name in sorted(PGBENCH) if name.startswith("pgbench_log")]


def test_pgbench_reads_as_it_wrote() -> None:
    load = parse_pgbench(PGBENCH["pgbench.out"], LOGS, 0.2)
    direction = load.directions["transaction"]
    assert (direction.ios, direction.iops, load.failed) == (600, 842.154906, 0)
    assert direction.run_s == pytest.approx(600 / 842.154906)
    # 600 transactions in 0.712 s, and 0.021 s of connecting before.
    assert load.tps_with_connections == pytest.approx(600 / (600 / 842.154906 + 0.020907))


def test_pgbenchs_log_gives_every_latency_exactly() -> None:
    load = parse_pgbench(PGBENCH["pgbench.out"], LOGS, 0.2)
    direction = load.directions["transaction"]
    each = sorted(int(line.split()[2]) for log in LOGS for line in log.splitlines())
    assert direction.percentile_us(0.5) == each[299]
    assert direction.percentile_us(0.999) == each[599] == direction.clat_max_us
    assert direction.clat_mean_us == pytest.approx(sum(each) / 600)
    assert sum(direction.buckets.values()) == 600
    assert sum((window.iops or 0) * 0.2 for window in load.windows) == pytest.approx(600)


def test_what_failed_or_was_skipped_has_no_latency() -> None:
    log = b"0 1 1500 0 1795249600 500000\n1 1 failed 0 1795249600 600000\n1 2 skipped 0 1795249600 700000 9\n"
    (one,) = parse_pgbench(PGBENCH["pgbench.out"], [log], 1.0).operations
    assert (one.at_s, one.latency_ns) == (1795249600.5, 1_500_000)


def test_rates_of_older_releases_are_both_told() -> None:
    text = (
        b"number of transactions actually processed: 1000\n"
        b"tps = 84.8 (including connections establishing)\ntps = 85.1 (excluding connections establishing)\n"
    )
    load = parse_pgbench(text, [], 1.0)
    assert (load.directions["transaction"].iops, load.tps_with_connections, load.failed) == (85.1, 84.8, None)


@pytest.mark.parametrize("text", [b"", b"pgbench: error: connection failed\n", PGBENCH["pgbench.out"][:200]])
def test_what_pgbench_never_finished_is_missing(text: bytes) -> None:
    with pytest.raises(EvidenceMissing):
        parse_pgbench(text, LOGS, 1.0)


def test_dbench_reads_as_it_wrote() -> None:
    load = parse_dbench(DBENCH, 1.0)
    direction = load.directions["transaction"]
    assert (direction.ios, direction.iops, direction.percentile_us(0.5)) == (None, None, None)
    assert (direction.bw_bytes_per_s, direction.run_s, direction.clat_max_us) == (340.566e6, 5, 12009)
    assert [window.number for window in load.windows] == [0, 1, 2, 3, 4]
    assert {window.iops for window in load.windows} == {None}
    # Its lines tell the mean so far: 374.96 after one second, 377.39 after two.
    assert load.windows[1].bw_bytes_per_s == pytest.approx((2 * 377.39 - 374.96) * 1e6)
    assert sum(window.bw_bytes_per_s for window in load.windows) == pytest.approx(5 * 340.57e6)


@pytest.mark.parametrize("text", [b"", b"dbench version 4.00\n", DBENCH[:800]])
def test_what_dbench_never_finished_is_missing(text: bytes) -> None:
    with pytest.raises(EvidenceMissing):
        parse_dbench(text, 1.0)


# A failure's evidence.


def test_every_acknowledged_write_of_a_failures_load_is_logged() -> None:
    files = sample("failure-kill/host1")
    load = read_host(files, 0.2).load
    assert load is not None
    assert len(load.operations) == load.directions["write"].ios == 721
    assert load.began_s == pytest.approx(float(read_host(files, 0.2).facts["started"]), abs=1)
    assert sum((window.iops or 0) * 0.2 for window in load.windows) == pytest.approx(721)


def test_logs_without_a_time_of_day_tell_no_operations() -> None:
    assert parse_operations(CLIENT["log_clat.log"]) == []
    assert parse_operations(b"") == []


def test_each_block_that_is_not_what_was_written_is_told_once() -> None:
    writer = parse_verification(sample("failure-kill/host1")["verify.json"])
    peer_text = sample("failure-kill/host2")["verify.json"]
    peer = parse_verification(peer_text)
    assert (writer.checked, len(writer.wrong), writer.error) == (721, 0, 0)
    assert (peer.checked, len(peer.wrong), peer.error) == (721, 362, 0)
    # fio's own count of them.
    assert json.loads(peer_text[peer_text.index(b"{") :])["jobs"][0]["total_err"] == 362


def test_another_error_than_a_wrong_block_is_kept() -> None:
    text = sample("failure-cut/host2")["verify.json"].replace(b'"error" : 0', b'"error" : 5')
    assert parse_verification(text).error == 5


def test_events_are_in_order_of_time_and_a_line_cut_short_is_left_out() -> None:
    events = parse_events(b"12.5 fault-end cut-all-links\n10.25 fault-begin cut-all-links 10.0.0.1\n13.")
    assert [(event.at_s, event.name, event.detail) for event in events] == [
        (10.25, "fault-begin", "cut-all-links 10.0.0.1"),
        (12.5, "fault-end", "cut-all-links"),
    ]


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
    # On a disk that was full for a while.
    assert (
        parse_telemetry(b"time 1795234700.0\ncpu  5005 time 1795234701.0\nMemTotal: 5 kB\n" + PEER["telemetry"])
        == whole
    )


def test_nothing_is_said_over_a_boot() -> None:
    first, *_, last = parse_telemetry(CLIENT["telemetry"])
    assert usage(replace(first, user=last.user + 1), last) is None
    assert usage(replace(first, rx_bytes=last.rx_bytes + 1), last) is None


def test_a_peer_has_telemetry_and_no_load() -> None:
    peer = read_host(PEER, 0.2)
    assert peer.load is None
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
