"""From real evidence to rows: columns that exist, missing kept missing, figures that can be computed again."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from test_evidence import CLIENT, PEER

from volumetry.commands import Host
from volumetry.evidence import HostEvidence, Window, read_host
from volumetry.plan import LOCAL, plan
from volumetry.reading import check_campaign
from volumetry.rows import Attempt, Committed, from_evidence, without_evidence
from volumetry.statistics import percentile
from volumetry.tables import TABLES
from volumetry.verdicts import Verdict

PLAN = plan(
    check_campaign(
        {
            "campaign": "rows",
            "seed": 1,
            "repetitions": 1,
            "topologies": {"single": {"stack": "local"}, "mirror": {"stack": "nbd-mirror"}},
            "workloads": {
                "randrw-4k": {"fio": {"rw": "randrw", "bs": "4k", "size": "64m", "ramp_time": "500ms", "runtime": "3s"}}
            },
        }
    ),
    LOCAL,
)
ENDED = 1795234776.855719  # in the captured facts
RUN_S = 3.001


def attempt(topology: str) -> Attempt:
    hosts = [
        Host(f"host{number}", f"i-{number}", f"10.42.0.{number}", None, f"vol-{number}", "a", "use1-az1", "ami-1")
        for number in range(1, len(PLAN.topologies[topology].hosts) + 1)
    ]
    trial = PLAN.trial(f"{topology}.stock.randrw-4k.r1")
    return Attempt("run-1", 2, PLAN, trial, hosts, "us-east-1", f"evidence/run-1/{trial.id}/2/")


def client(**facts: str) -> HostEvidence:
    host = read_host(CLIENT, 0.2)
    return replace(host, facts={**host.facts, **facts})


def peer(**facts: str) -> HostEvidence:
    """The captured peer ran 6 s before the captured client: its clock is set forward."""
    host = read_host(PEER, 0.2)
    samples = [replace(sample, time_s=sample.time_s + 6.4) for sample in host.samples]
    return replace(host, samples=samples, facts={**host.facts, **facts})


def single(host: HostEvidence | None = None) -> Committed:
    return from_evidence(attempt("single"), {"host1": host or client()})


def mirror(first: HostEvidence | None = None, second: HostEvidence | None = None) -> Committed:
    return from_evidence(attempt("mirror"), {"host1": first or client(), "host2": second or peer()})


def stolen(host: HostEvidence, ticks: int) -> HostEvidence:
    """The host with so many ticks taken by others between each two samples."""
    samples = [replace(sample, steal=sample.steal + ticks * place) for place, sample in enumerate(host.samples)]
    return replace(host, samples=samples)


def windows(iops: dict[int, float]) -> list[Window]:
    return [Window("read", number, rate, 4096 * rate, 500.0) for number, rate in iops.items()]


@pytest.mark.parametrize("committed", [single(), mirror()], ids=["single", "mirror"])
def test_every_row_fits_its_table(committed: Committed) -> None:
    assert set(committed.rows) == set(TABLES)
    for table, rows in committed.rows.items():
        schema = TABLES[table].arrow_schema()
        assert rows
        assert {name for row in rows for name in row} <= set(schema.names)
        kept = [
            {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
            for row in rows
        ]
        schema = pa.schema([pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type)
                            for f in schema])  # fmt: skip
        assert pa.Table.from_pylist(kept, schema).num_rows == len(rows)


def test_every_column_of_a_whole_trial_is_filled() -> None:
    """All that commit knows of a mirror's trial: what a column lacks here, nobody ever fills."""
    of_other_loads_and_volumes = {"rwmixread", "volume_iops", "volume_throughput_mibps"}
    for table, rows in mirror().rows.items():
        empty = {column.name for column in TABLES[table].columns if all(row.get(column.name) is None for row in rows)}
        assert empty <= of_other_loads_and_volumes, table


def test_a_mixed_load_has_a_row_for_each_direction_and_a_verdict_for_both() -> None:
    committed = single()
    rows = committed.rows["trials"]
    assert [row["direction"] for row in rows] == ["read", "write"]
    assert {row["verdict"] for row in rows} == {committed.verdict.word} == {"valid"}
    assert sum(row["iops"] for row in rows) == committed.iops
    assert committed.run_s == RUN_S
    assert {table: {row["direction"] for row in committed.rows[table]} for table in ("intervals", "histograms")} == {
        "intervals": {"read", "write"},
        "histograms": {"read", "write"},
    }


def test_percentiles_are_those_of_the_buckets() -> None:
    rows = single().rows
    for trial in rows["trials"]:
        counts: Counter[int] = Counter()
        for bucket in rows["histograms"]:
            if bucket["direction"] == trial["direction"]:
                # fio names a bucket by its midpoint.
                counts[(bucket["lower_ns"] + bucket["upper_ns"]) // 2] += bucket["n"]
        assert counts.total() == trial["ios"]
        for column, share in (("clat_p50_us", 0.5), ("clat_p99_us", 0.99), ("clat_p999_us", 0.999)):
            assert trial[column] == (percentile(counts, share) or 0) / 1000


def test_identity_is_the_same_in_every_row() -> None:
    for rows in mirror().rows.values():
        for row in rows:
            assert (row["execution"], row["trial"], row["attempt"]) == ("run-1", "mirror.stock.randrw-4k.r1", 2)
            assert (row["topology"], row["stack"], row["tuning"], row["repetition"]) == (
                "mirror",
                "nbd-mirror",
                "stock",
                1,
            )


def test_provenance_is_in_the_order_of_the_hosts() -> None:
    row = mirror().rows["trials"][0]
    assert (row["instance_ids"], row["volume_ids"]) == ("i-1,i-2", "vol-1,vol-2")
    assert (row["instance_types"], row["az_ids"], row["ami"]) == ("m6i.large,m6i.large", "use1-az1,use1-az1", "ami-1")
    assert (row["fio_version"], row["host_kind"], row["ioengine"]) == ("fio-3.33", "process", "nbd")
    assert (row["rtt_us"], row["first_sync_skipped"]) == (223.0, False)


def test_a_shared_volume_is_named_once() -> None:
    both = attempt("mirror")
    same = replace(both, hosts=[replace(host, volume_id="vol-1") for host in both.hosts])
    rows = from_evidence(same, {"host1": client(), "host2": peer()}).rows["trials"]
    assert {row["volume_ids"] for row in rows} == {"vol-1"}


def test_a_trial_starts_its_run_before_its_end() -> None:
    row = single().rows["trials"][0]
    assert row["ended_at"] == datetime.fromtimestamp(ENDED, UTC)
    assert row["ended_at"] - row["started_at"] == timedelta(seconds=RUN_S)


# Missing is None, never zero.


def test_a_single_host_has_no_peer_and_no_round_trip() -> None:
    for row in single().rows["trials"]:
        assert (row["peer_cpu_pct"], row["rtt_us"]) == (None, None)


def test_facts_that_a_host_did_not_write_are_missing() -> None:
    bare = replace(client(), facts={"started": "1795234773.0", "ended": str(ENDED)})
    row = single(bare).rows["trials"][0]
    for name in ("kernel", "fio_version", "ioengine", "stack_driver", "host_kind", "first_sync_skipped", "rtt_us"):
        assert row[name] is None, name


def test_without_telemetry_there_is_no_cpu_and_no_row_of_hosts() -> None:
    committed = single(replace(client(), samples=[]))
    assert committed.rows["hosts"] == []
    assert {row["cpu_pct"] for row in committed.rows["trials"]} == {None}
    assert committed.verdict.word == "valid"


def test_too_few_windows_for_five_rounds_are_neither_steady_nor_not() -> None:
    committed = single(replace(client(), windows=client().windows[:4]))
    row = committed.rows["trials"][0]
    assert (row["steady"], row["steady_range_pct"], row["steady_slope_pct"]) == (None, None, None)
    assert committed.verdict.word == "valid"


def test_the_open_bucket_has_no_upper_bound() -> None:
    host = client()
    assert host.fio is not None
    host.fio.directions["read"].buckets[17_112_760_320] += 1
    bounds = [(row["lower_ns"], row["upper_ns"]) for row in single(host).rows["histograms"]]
    assert [lower for lower, upper in bounds if upper is None] == [17_045_651_456]


def test_a_load_that_did_no_io_has_one_row_that_claims_no_figure() -> None:
    host = client()
    assert host.fio is not None
    idle = replace(host, fio=replace(host.fio, directions={}), windows=[])
    committed = single(idle)
    assert committed.verdict == Verdict("failed", "no I/O completed in the measured part")
    (row,) = committed.rows["trials"]
    assert row["direction"] is None
    assert not {"ios", "iops", "io_bytes", "clat_mean_us", "clat_p99_us"} & row.keys()
    assert (row["run_s"], row["started_at"], row["cpu_pct"]) == (None, None, None)
    assert committed.run_s is None


def test_a_client_that_did_not_say_when_it_ended_has_no_times() -> None:
    host = client()
    committed = single(replace(host, facts={name: host.facts[name] for name in host.facts if name != "ended"}))
    row = committed.rows["trials"][0]
    assert (row["started_at"], row["ended_at"], row["run_s"]) == (None, None, RUN_S)
    assert {interval["at"] for interval in committed.rows["intervals"]} == {None}
    assert committed.rows["hosts"] == []


def test_an_attempt_without_evidence_is_one_row_without_a_direction() -> None:
    committed = without_evidence(replace(attempt("mirror"), hosts=[]), Verdict("failed", "it was never launched"))
    assert set(committed.rows) == {"trials"}
    (row,) = committed.rows["trials"]
    assert set(row) <= set(TABLES["trials"].arrow_schema().names)
    assert (row["direction"], row["verdict"], row["reason"]) == (None, "failed", "it was never launched")
    assert (committed.iops, committed.run_s) == (None, None)
    assert (row["instance_ids"], row["volume_ids"], row["az_ids"], row["ami"]) == (None, None, None, None)
    assert not {"iops", "clat_p50_us", "cpu_pct", "run_s", "started_at", "kernel"} & row.keys()
    # What was planned is known all the same.
    assert (row["rw"], row["bs"], row["iodepth"], row["ceiling_iops"]) == ("randrw", "4k", 1, 3000)


# What the facts of any host do to the verdict.


@pytest.mark.parametrize("lost", ["first", "second", "both"])
def test_a_mirror_that_broke_on_any_host_is_degraded(lost: str) -> None:
    first = client(mirror_broken="host2 is gone") if lost != "second" else client()
    second = peer(mirror_broken="no connection") if lost != "first" else peer()
    committed = mirror(first, second)
    reason = {"first": "host2 is gone", "second": "no connection", "both": "host2 is gone; no connection"}[lost]
    assert committed.verdict == Verdict("degraded", reason)
    assert {row["verdict"] for row in committed.rows["trials"]} == {"degraded"}
    assert all(row["iops"] for row in committed.rows["trials"])


def test_a_mirror_that_is_whole_says_so_with_an_empty_fact() -> None:
    assert mirror(client(mirror_broken="")).verdict.word == "valid"


@pytest.mark.parametrize("disturbed", ["client", "peer"])
def test_a_neighbour_on_any_host_disturbs_the_trial(disturbed: str) -> None:
    ours, theirs = client(), peer()
    committed = mirror(
        stolen(ours, 100) if disturbed == "client" else ours, stolen(theirs, 100) if disturbed == "peer" else theirs
    )
    assert committed.verdict.word == "unsteady"
    assert re.match(r"disturbed: others took \d\.\d of 2 processors", committed.verdict.reason)


def test_an_error_of_fio_fails_the_trial_and_keeps_its_rows() -> None:
    host = client()
    assert host.fio is not None
    committed = single(replace(host, fio=replace(host.fio, error=5)))
    assert committed.verdict.word == "failed"
    assert len(committed.rows["trials"]) == 2


def test_the_cpu_of_peers_is_told_apart() -> None:
    row = mirror().rows["trials"][0]
    assert row["cpu_pct"] > row["peer_cpu_pct"] >= 0
    assert {host["host"] for host in mirror().rows["hosts"]} == {"host1", "host2"}


# Time within the trial.


def test_seconds_begin_with_the_measured_part_and_end_with_it() -> None:
    rows = single().rows
    for name in ("intervals", "hosts"):
        assert sorted({row["second"] for row in rows[name]}) == [0, 1, 2]
    assert rows["intervals"][0]["at"] == rows["trials"][0]["started_at"]


def test_intervals_add_up_to_the_operations_of_the_trial() -> None:
    rows = single().rows
    for trial in rows["trials"]:
        total = sum(row["iops"] for row in rows["intervals"] if row["direction"] == trial["direction"])
        assert total == pytest.approx(trial["ios"], rel=0.02)


def test_a_standstill_is_told_as_seconds_without_operations() -> None:
    """fio's logs have no row for a window in which nothing completed."""
    still = {number: 1000.0 for number in range(15) if not 4 <= number <= 11}
    rows = single(replace(client(), windows=windows(still))).rows["intervals"]
    assert [(row["second"], row["iops"]) for row in rows] == [(0, 800.0), (1, 0.0), (2, 600.0)]
    assert [row["clat_mean_us"] for row in rows] == [500.0, None, 500.0]


def test_a_standstill_is_not_steady() -> None:
    still = {number: 1000.0 for number in range(15) if not 6 <= number <= 8}
    committed = single(replace(client(), windows=windows(still)))
    assert committed.verdict.word == "unsteady"
    assert committed.rows["trials"][0]["steady_range_pct"] == pytest.approx(125)


def test_a_last_window_that_fio_left_out_is_no_standstill() -> None:
    whole = dict.fromkeys(range(14), 1000.0)
    committed = single(replace(client(), windows=windows(whole)))
    assert committed.verdict.word == "valid"
    assert [row["iops"] for row in committed.rows["intervals"]] == [1000.0, 1000.0, 1000.0]


def test_windows_after_the_planned_part_are_not_judged() -> None:
    late: dict[int, Any] = dict.fromkeys(range(15), 1000.0) | {15: 10.0}
    assert single(replace(client(), windows=windows(late))).verdict.word == "valid"
