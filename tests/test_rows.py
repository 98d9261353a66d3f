"""From real evidence to rows: columns that exist, missing kept missing, figures that can be computed again."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from test_evidence import CLIENT, DBENCH, PEER, PGBENCH, sample

from volumetry.commands import Host
from volumetry.evidence import HostEvidence, Window, read_host
from volumetry.evidence.failure import Event
from volumetry.plan import LOCAL, Plan, plan
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
                "randrw-4k": {
                    "fio": {"rw": "randrw", "bs": "4k", "size": "64m", "ramp_time": "500ms", "runtime": "3s"}
                },
            },
        }
    ),
    LOCAL,
)
UNDER = plan(
    check_campaign(
        {
            "campaign": "rows",
            "seed": 1,
            "repetitions": 1,
            "topologies": {"mirror": {"stack": "nbd-mirror"}, "drbd": {"stack": "drbd"}},
            "workloads": {
                event: {
                    "fio": {"rw": "randwrite", "bs": "4k", "size": "4m", "rate_iops": "120", "runtime": "6s"},
                    "failure": {"event": event, "at": "2s", "lasts": "1500ms"},
                }
                for event in ("cut-all-links", "kill-peer")
            },
        }
    ),
    LOCAL,
)
DATABASE = plan(
    check_campaign(
        {
            "campaign": "rows",
            "seed": 1,
            "repetitions": 1,
            "topologies": {"single": {"stack": "local", "filesystem": "xfs"}},
            "workloads": {
                "pgbench": {"pgbench": {"scale": 1, "client": 3, "jobs": 2, "transactions": 200}},
                "dbench": {"dbench": {"clients": 2, "timelimit": 6}},
            },
        }
    ),
    LOCAL,
)
ENDED = 1795234776.855719  # in the captured facts
RUN_S = 3.001


def attempt(topology: str, planned: Plan = PLAN, workload: str = "randrw-4k") -> Attempt:
    hosts = [
        Host(f"host{number}", f"i-{number}", f"10.42.0.{number}", None, f"vol-{number}", "a", "use1-az1", "ami-1")
        for number in range(1, len(planned.topologies[topology].hosts) + 1)
    ]
    trial = planned.trial(f"{topology}.stock.{workload}.r1")
    return Attempt("run-1", 2, planned, trial, hosts, "us-east-1", f"evidence/run-1/{trial.id}/2/")


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


def calm(host: HostEvidence) -> HostEvidence:
    return replace(host, samples=[replace(each, steal=0) for each in host.samples])


def under(name: str, workload: str, **changed: HostEvidence) -> Committed:
    """The trial of a real mirror under a failure, some hosts changed; the machine was busy at its capture."""
    hosts = {host: calm(read_host(sample(f"failure-{name}/{host}"), 0.2)) for host in ("host1", "host2")}
    topology = "drbd" if name == "drbd" else "mirror"
    return from_evidence(attempt(topology, UNDER, workload), hosts | changed)


def database(tool: str, files: dict[str, bytes]) -> Committed:
    facts = (
        b"started=1795249602.0\nended=1795249603.0\npgbench_version=15.18\nfilesystem=xfs\nmount_options=rw,noatime\n"
    )
    host = read_host({**files, "facts": facts}, 0.2 if tool == "dbench" else 1.0, tool)
    return from_evidence(attempt("single", DATABASE, tool), {"host1": host})


def stolen(host: HostEvidence, ticks: int) -> HostEvidence:
    """The host with so many ticks taken by others between each two samples."""
    samples = [replace(sample, steal=sample.steal + ticks * place) for place, sample in enumerate(host.samples)]
    return replace(host, samples=samples)


def with_windows(changed: list[Window]) -> HostEvidence:
    host = client()
    assert host.load is not None
    return replace(host, load=replace(host.load, windows=changed))


def windows(iops: dict[int, float]) -> list[Window]:
    return [Window("read", number, rate, 4096 * rate, 500.0) for number, rate in iops.items()]


COMMITTED = {
    "single": single(),
    "mirror": mirror(),
    "cut": under("cut", "cut-all-links"),
    "kill": under("kill", "kill-peer"),
    "drbd": under("drbd", "cut-all-links"),
    "pgbench": database("pgbench", PGBENCH),
    "dbench": database("dbench", {"dbench.out": DBENCH}),
}


@pytest.mark.parametrize("name", COMMITTED)
def test_every_row_fits_its_table(name: str) -> None:
    committed = COMMITTED[name]
    assert set(committed.rows) == set(TABLES)
    for table, rows in committed.rows.items():
        schema = TABLES[table].arrow_schema()
        assert {name for row in rows for name in row} <= set(schema.names)
        kept = [
            {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
            for row in rows
        ]
        schema = pa.schema([pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type)
                            for f in schema])  # fmt: skip
        assert pa.Table.from_pylist(kept, schema).num_rows == len(rows)


def test_every_column_is_filled_by_some_trial() -> None:
    """What a column lacks here, nobody ever fills."""
    for table, given in TABLES.items():
        rows = [row for committed in COMMITTED.values() for row in committed.rows[table]]
        empty = {column.name for column in given.columns if all(row.get(column.name) is None for row in rows)}
        # Of other loads and volumes; of a path taken apart, which has its own test.
        assert empty <= {
            "rwmixread",
            "volume_iops",
            "volume_throughput_mibps",
            "alone_clat_p50_us",
        }, table


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
    committed = single(with_windows(windows(dict.fromkeys(range(4), 1000.0))))
    row = committed.rows["trials"][0]
    assert (row["steady"], row["steady_range_pct"], row["steady_slope_pct"]) == (None, None, None)
    assert committed.verdict.word == "valid"


def test_the_open_bucket_has_no_upper_bound() -> None:
    host = client()
    assert host.load is not None
    host.load.directions["read"].buckets[17_112_760_320] += 1
    bounds = [(row["lower_ns"], row["upper_ns"]) for row in single(host).rows["histograms"]]
    assert [lower for lower, upper in bounds if upper is None] == [17_045_651_456]


def test_a_load_that_did_no_io_has_one_row_that_claims_no_figure() -> None:
    host = client()
    assert host.load is not None
    idle = replace(host, load=replace(host.load, directions={}, windows=[]))
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
    assert host.load is not None
    committed = single(replace(host, load=replace(host.load, error=5)))
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
    rows = single(with_windows(windows(still))).rows["intervals"]
    assert [(row["second"], row["iops"]) for row in rows] == [(0, 800.0), (1, 0.0), (2, 600.0)]
    assert [row["clat_mean_us"] for row in rows] == [500.0, None, 500.0]


def test_a_standstill_is_not_steady() -> None:
    still = {number: 1000.0 for number in range(15) if not 6 <= number <= 8}
    committed = single(with_windows(windows(still)))
    assert committed.verdict.word == "unsteady"
    assert committed.rows["trials"][0]["steady_range_pct"] == pytest.approx(125)


def test_a_last_window_that_fio_left_out_is_no_standstill() -> None:
    whole = dict.fromkeys(range(14), 1000.0)
    committed = single(with_windows(windows(whole)))
    assert committed.verdict.word == "valid"
    assert [row["iops"] for row in committed.rows["intervals"]] == [1000.0, 1000.0, 1000.0]


def test_windows_after_the_planned_part_are_not_judged() -> None:
    late: dict[int, Any] = dict.fromkeys(range(15), 1000.0) | {15: 10.0}
    assert single(with_windows(windows(late))).verdict.word == "valid"


# Other tools.


def test_transactions_are_rows_of_their_own_direction() -> None:
    committed = COMMITTED["pgbench"]
    (row,) = committed.rows["trials"]
    assert (row["direction"], row["tool"], row["tool_version"], row["clients"]) == (
        "transaction",
        "pgbench",
        "15.18",
        3,
    )
    assert (row["ios"], row["iops"], row["transactions_failed"]) == (600, 842.154906, 0)
    assert row["tps_with_connections"] < row["iops"]
    assert (row["rw"], row["bs"], row["iodepth"], row["io_bytes"]) == (None, None, None, 0)
    assert (row["filesystem"], row["mount_options"]) == ("xfs", "rw,noatime")
    assert sum(bucket["n"] for bucket in committed.rows["histograms"]) == 600
    assert row["clat_p50_us"] < row["clat_p99_us"] <= row["clat_max_us"]


def test_a_tool_that_counts_bytes_alone_claims_no_operations() -> None:
    committed = COMMITTED["dbench"]
    (row,) = committed.rows["trials"]
    assert (row["ios"], row["iops"], row["clat_p50_us"], row["clat_max_us"]) == (None, None, None, 12009)
    assert (row["bw_bytes_per_s"], row["run_s"], row["clients"]) == (340.566e6, 5, 2)
    assert committed.verdict.word in ("valid", "unsteady")
    assert [(each["second"], each["iops"]) for each in committed.rows["intervals"]] == [(n, None) for n in range(5)]
    assert committed.iops is None


# A failure under load.


def test_a_link_that_was_cut_stalls_the_load_and_loses_nothing() -> None:
    committed = COMMITTED["cut"]
    (row,) = committed.rows["trials"]
    assert committed.verdict.word == "valid"
    assert committed.whole
    assert row["failure"] == "cut-all-links"
    assert 1.4 < row["stall_s"] < 3
    assert row["before_iops"] == pytest.approx(120, rel=0.05)
    assert (row["writes_acknowledged"], row["writes_lost"], row["legs_identical"]) == (664, 0, True)
    assert (row["resync_s"], row["resync_iops"]) == (None, None)


def test_a_peer_that_was_killed_lacks_writes_and_the_verdict_says_how_many() -> None:
    committed = COMMITTED["kill"]
    (row,) = committed.rows["trials"]
    assert committed.verdict.word == "valid"
    assert not committed.whole
    assert "362 of 721 acknowledged writes are lost or altered on host2; the legs differ" in committed.verdict.reason
    assert (row["writes_acknowledged"], row["writes_lost"], row["legs_identical"]) == (721, 362, False)
    assert row["degraded_iops"] == pytest.approx(120, rel=0.1)
    assert row["stall_s"] < 0.5


def test_a_mirror_that_resynchronises_is_followed_until_it_is_whole() -> None:
    """DRBD 8.4 on two guests: it waits for its peer, goes on without, and copies what the peer lacks."""
    committed = COMMITTED["drbd"]
    (row,) = committed.rows["trials"]
    assert (committed.verdict.word, committed.whole) == ("valid", True)
    assert (row["writes_acknowledged"], row["writes_lost"], row["legs_identical"]) == (1710, 0, True)
    assert row["stack_status"] == "Connected Primary/Secondary UpToDate/UpToDate oos=0"
    assert 10 < row["stall_s"] < 12
    assert row["resync_s"] == pytest.approx(14.1, abs=0.1)
    assert row["degraded_iops"] > 0
    states = [each["detail"].split()[0] for each in committed.rows["events"] if each["event"] == "state"]
    assert {"Connected", "WFConnection", "SyncSource", "SyncTarget"} <= set(states)


def test_events_are_rows_in_seconds_of_the_load() -> None:
    rows = COMMITTED["cut"].rows["events"]
    begin, end = (next(row for row in rows if row["event"] == name) for name in ("fault-begin", "fault-end"))
    assert (begin["host"], begin["detail"]) == ("host2", "cut-all-links 10.0.0.1")
    assert 1.5 < begin["second"] < 2.5
    assert end["second"] - begin["second"] == pytest.approx(1.5, abs=0.1)
    assert {row["event"] for row in rows} == {"fault-begin", "fault-end", "verify-begin", "verify-end"}


def test_a_leg_that_was_not_read_in_full_fails_the_trial() -> None:
    unread = replace(read_host(sample("failure-cut/host2"), 0.2), verification=None)
    committed = under("cut", "cut-all-links", host2=unread)
    assert committed.verdict == Verdict("failed", "of 664 acknowledged writes none could be read back on host2")
    (row,) = committed.rows["trials"]
    assert (row["writes_acknowledged"], row["writes_lost"]) == (664, None)


def test_a_failure_that_nobody_noted_fails_the_trial() -> None:
    idle = replace(read_host(sample("failure-cut/host2"), 0.2), events=[])
    assert under("cut", "cut-all-links", host2=idle).verdict.reason == "cut-all-links: no host noted its begin"


def test_changes_of_the_mirrors_state_give_the_resynchronisation() -> None:
    host = read_host(sample("failure-cut/host1"), 0.2)
    cut = read_host(sample("failure-cut/host2"), 0.2).events[1].at_s
    lines = [(-2.0, "Connected"), (-1.0, "WFConnection"), (0.5, "SyncSource"), (1.75, "Connected")]
    states = [Event(cut + after, "state", line) for after, line in lines]
    committed = under("cut", "cut-all-links", host1=replace(host, states=states))
    (row,) = committed.rows["trials"]
    assert row["resync_s"] == pytest.approx(1.25)
    assert row["resync_iops"] > 0
    assert [each["detail"] for each in committed.rows["events"] if each["event"] == "state"] == [
        line for _, line in lines
    ]


def test_the_same_load_without_its_peer_is_a_column() -> None:
    host = client()
    (read, write) = from_evidence(attempt("single"), {"host1": replace(host, alone=host.load)}).rows["trials"]
    assert (read["alone_clat_p50_us"], write["alone_clat_p50_us"]) == (read["clat_p50_us"], write["clat_p50_us"])
