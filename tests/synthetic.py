"""A made-up execution, told as Parquet as commit writes it: five topologies, three loads, drift, and trials that fail.

The latencies are invented but of a likely size; every figure that a test expects is computed here, apart from the SQL.
"""

import json
import math
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.views import view_inputs
from local_region import athena
from volumetry.analysis import build
from volumetry.plan import LOCAL, Plan, plan
from volumetry.report.model import Report
from volumetry.spec import Campaign
from volumetry.tables import TABLES, glue_partition_keys, partition

QUERIES = Path(__file__).parent.parent / "queries"
BEGAN = datetime(2026, 11, 20, 10, 15, tzinfo=UTC)
EXECUTION = "demo-20261120-101500"
SECONDS = 30
COMMAND = "volumetry run campaigns/demo.yaml --on local"
KEPT = TemporaryDirectory(prefix="volumetry-synthetic-")  # as long as the tests run

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Query = Callable[[str], list[dict[str, Any]]]

CAMPAIGN: dict[str, Any] = {
    "campaign": "replication-ladder",
    "description": "The replication ladder, from one host with a volume of its own to a mirror across AZs.",
    "seed": 20141,
    "repetitions": 6,
    "ladder": ["single", "shared", "mirror", "mirror-two-links", "mirror-across-azs"],
    "topologies": {
        "single": {"stack": "local"},
        "shared": {"stack": "shared"},
        "mirror": {"stack": "nbd-mirror"},
        "mirror-two-links": {"stack": "nbd-mirror", "links": 2},
        "mirror-across-azs": {"stack": "nbd-mirror", "links": 2, "azs": ["a", "b"]},
        "single-again": {"stack": "local"},
    },
    "tunings": {
        "stock": {},
        "mtu-1500": {"network": {"mtu": 1500}},
    },
    "workloads": {
        "randrw-4k": {"fio": {"rw": "randrw", "rwmixread": 50, "bs": "4k", "size": "256m", "runtime": "30s"}},
        "seqwrite-64k": {"fio": {"rw": "write", "bs": "64k", "size": "256m", "runtime": "30s"}},
        "randread-4k-deep": {"fio": {"rw": "randread", "bs": "4k", "iodepth": 32, "size": "256m", "runtime": "30s"}},
    },
    "matrix": [
        {"tunings": ["stock"]},
        {
            "topologies": ["mirror-two-links", "mirror-across-azs"],
            "tunings": ["mtu-1500"],
            "workloads": ["seqwrite-64k"],
        },
    ],
}

# Mean microseconds of a 4 KiB read and write, and of a 64 KiB write, at queue depth 1.
LATENCY_US = {
    "single": {"read": 512, "write": 540, "write-64k": 780},
    "single-again": {"read": 512, "write": 540, "write-64k": 780},
    "shared": {"read": 515, "write": 548, "write-64k": 790},
    "mirror": {"read": 518, "write": 1015, "write-64k": 1680},
    "mirror-two-links": {"read": 518, "write": 1002, "write-64k": 1610},
    "mirror-across-azs": {"read": 520, "write": 2040, "write-64k": 2905},
}
CPU_PCT = {
    "single": 8.1,
    "single-again": 8.0,
    "shared": 8.2,
    "mirror": 12.6,
    "mirror-two-links": 11.9,
    "mirror-across-azs": 8.9,
}


@dataclass
class Synthetic:
    """The execution's plan, its rows, and a query port over them."""

    plan: Plan
    rows: Rows
    query: Query
    folder: Path


@dataclass
class _Made:
    iops: dict[str, float]
    latency_us: dict[str, float]
    verdict: str = "valid"
    reason: str = ""
    per_second: Callable[[int], float] = field(default=lambda second: 1.0)


def make(folder: Path, *, repetitions: int = 6, seed: int = 1, **changes: Any) -> Synthetic:
    """Write the execution below ``folder``; ``changes`` replace fields of the campaign."""
    campaign = Campaign.model_validate(CAMPAIGN | {"repetitions": repetitions} | changes)
    planned = plan(campaign, LOCAL)
    draw = random.Random(seed)
    rows: Rows = {name: [] for name in TABLES}
    for trial in planned.trials:
        began = BEGAN + timedelta(seconds=40 * trial.sequence)
        attempts = list(_attempts(trial, draw, len(planned.trials)))
        for number, made in enumerate(attempts, 1):
            _tell(rows, planned, trial, number, made, began + timedelta(seconds=40 * (number - 1)), draw)
    write(folder, rows)
    return Synthetic(planned, rows, port(folder), folder)


@cache
def standard() -> Synthetic:
    """The execution with all its defaults, made once for all tests."""
    return make(Path(KEPT.name) / "tables")


@cache
def standard_report() -> Report:
    """Its report."""
    return analyse(standard())


def analyse(made: Synthetic) -> Report:
    return build(made.query, made.plan, execution=EXECUTION, began=BEGAN, command=COMMAND)


def write(folder: Path, rows: Rows) -> None:
    """Rows as commit lays them out: one object an attempt."""
    for table, told in rows.items():
        objects: dict[str, list[Row]] = {}
        for row in told:
            objects.setdefault(f"{row['execution']}.{row['trial']}.{row['attempt']}", []).append(row)
        place = folder / table / f"dt={partition(BEGAN)}"
        place.mkdir(parents=True, exist_ok=True)
        for name, group in objects.items():
            schema = TABLES[table].arrow_schema()
            pq.write_table(pa.Table.from_pylist(group, schema), place / f"{name}.parquet", compression="zstd")


def glue_tables(folder: Path) -> list[dict[str, Any]]:
    """The Glue catalog of the tables below ``folder`` and of the views of queries/."""
    tables = [
        {
            "DatabaseName": "volumetry",
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {"Columns": table.glue_columns(), "Location": f"s3://results/tables/{name}/"},
            "PartitionKeys": glue_partition_keys(),
            "Parameters": {
                "projection.enabled": "true",
                "projection.dt.type": "date",
                "projection.dt.format": "yyyy-MM-dd",
                "projection.dt.range": "2026-01-01,NOW+1DAYS",
            },
        }
        for name, table in TABLES.items()
    ]
    return [*tables, *({**view, "DatabaseName": "volumetry"} for view in view_inputs("volumetry", QUERIES))]


def port(folder: Path) -> Query:
    """Athena over the tables below ``folder``; values are text, as GetQueryResults gives them."""
    tables = glue_tables(folder)

    def query(sql: str) -> list[dict[str, Any]]:
        found = athena.run(
            sql, database="volumetry", tables=tables, folder=lambda place: folder / place.rstrip("/").rpartition("/")[2]
        )
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    return query


def _attempts(trial: Any, draw: random.Random, trials: int) -> Iterator[_Made]:
    """What the trial came to, attempt by attempt: most are valid at once."""
    latency = LATENCY_US[trial.topology]
    drift = 1 + 0.03 * trial.sequence / trials
    noise = drift * draw.lognormvariate(0, 0.018)
    if trial.workload == "randread-4k-deep":
        reason = "2994 IOPS sit on the limit of 3000: gp3 volume, provisioned IOPS"
        yield _Made({"read": 2994 + draw.uniform(-4, 4)}, {"read": 10_650}, "capped", reason)
    elif trial.workload == "seqwrite-64k":
        worse = 1.14 if trial.tuning == "mtu-1500" else 1.0
        mean = latency["write-64k"] * noise * worse
        yield _Made({"write": 1e6 / mean}, {"write": mean})
    else:
        mean = (latency["read"] + latency["write"]) / 2 * noise
        made = _Made(
            {"read": 0.5e6 / mean, "write": 0.5e6 / mean},
            {"read": latency["read"] * noise, "write": latency["write"] * noise},
        )
        if (trial.topology, trial.repetition) == ("shared", 4):
            yield _Made({}, {}, "failed", "host2 uploaded no manifest")
        if (trial.topology, trial.repetition) == ("mirror-across-azs", 2):
            made.verdict = "unsteady"
            made.reason = "the last five rounds range over 31.4 % of their mean (20 % allowed)"
            made.per_second = lambda second: 1.25 if second < 15 else 0.7
        if (trial.topology, trial.repetition) == ("mirror", 3):
            made.verdict, made.reason = "degraded", "the connection to host2 was lost during the trial"
            made.per_second = lambda second: 1.0 if second < 12 else 1.9
        yield made


def _tell(
    rows: Rows, planned: Plan, trial: Any, attempt: int, made: _Made, began: datetime, draw: random.Random
) -> None:
    topology = planned.topologies[trial.topology]
    load = planned.workloads[trial.workload]
    hosts = list(topology.hosts)
    identity = {
        "execution": EXECUTION,
        "campaign": planned.campaign,
        "topology": trial.topology,
        "stack": topology.stack,
        "tuning": trial.tuning,
        "workload": trial.workload,
        "repetition": trial.repetition,
        "trial": trial.id,
        "attempt": attempt,
    }
    started = began.replace(tzinfo=None)
    cpu = CPU_PCT[trial.topology] * draw.uniform(0.95, 1.05)
    ceiling = trial.ceilings[0] if trial.ceilings else None
    across = len(set(topology.hosts.values())) > 1
    common = identity | {
        "sequence": trial.sequence,
        "block": trial.block,
        "verdict": made.verdict,
        "reason": made.reason,
        "tool": "fio",
        "rw": load.option("rw"),
        "bs": load.option("bs", "4k"),
        "iodepth": int(load.option("iodepth", "1") or 1),
        "numjobs": 1,
        "clients": 1,
        "ceiling_iops": ceiling and ceiling.iops,
        "ceiling_cause": ceiling and ceiling.cause,
        "az_ids": ",".join(f"local1-az{'abc'.index(az) + 1}" for az in topology.hosts.values()),
        "instance_ids": ",".join(f"i-{zlib.crc32(f'{trial.topology}.{host}'.encode()):017x}" for host in hosts),
        "instance_types": ",".join([topology.instance_type] * len(hosts)),
        "volume_type": topology.volume["type"],
        "volume_size_gib": topology.volume["size_gib"],
        "volume_iops": 3000,
        "tuning_values": planned.tunings[trial.tuning].model_dump_json(exclude_none=True),
        "region": "us-east-1",
        "evidence": f"evidence/{EXECUTION}/{trial.id}/{attempt}/",
    }
    if not made.iops:
        rows["trials"].append(common | {"direction": None})
        return
    steady = made.verdict != "unsteady"
    common |= {
        "started_at": started,
        "ended_at": started + timedelta(seconds=SECONDS),
        "run_s": float(SECONDS),
        "cpu_pct": cpu,
        "peer_cpu_pct": cpu * 0.6 if len(hosts) > 1 and topology.stack != "shared" else None,
        "steady": steady,
        "steady_range_pct": 4.0 if steady else 31.4,
        "steady_slope_pct": 1.0 if steady else 25.0,
        "rtt_us": (1010.0 if across else 105.0) * draw.uniform(0.97, 1.05) if len(hosts) > 1 else None,
        "kernel": "6.8.0-1021-aws",
        "fio_version": "fio-3.36",
        "ioengine": "nbd" if topology.stack == "nbd-mirror" else "libaio",
        "stack_driver": "qemu-storage-daemon 8.2.2" if topology.stack == "nbd-mirror" else "none",
        "stack_parameters": json.dumps(
            {"quorum": 2, "links": topology.links} if topology.stack == "nbd-mirror" else {}
        ),
        "first_sync_skipped": True if topology.stack == "nbd-mirror" else None,
        "host_kind": "process",
    }
    block_bytes = 65536 if "64k" in trial.workload else 4096
    for direction, iops in made.iops.items():
        buckets = histogram(made.latency_us[direction], round(iops * SECONDS), deep="deep" in trial.workload)
        rows["trials"].append(
            common
            | {
                "direction": direction,
                "ios": round(iops * SECONDS),
                "io_bytes": round(iops * SECONDS) * block_bytes,
                "iops": iops,
                "bw_bytes_per_s": iops * block_bytes,
                "clat_mean_us": made.latency_us[direction],
            }
        )
        rows["histograms"] += [
            identity | {"direction": direction, "lower_ns": low, "upper_ns": high, "n": n} for low, high, n in buckets
        ]
        rows["intervals"] += [
            identity
            | {
                "direction": direction,
                "second": second,
                "at": started + timedelta(seconds=second),
                "iops": iops * made.per_second(second) * draw.lognormvariate(0, 0.02),
            }
            for second in range(SECONDS)
        ]
    for place, host in enumerate(hosts):
        rows["hosts"] += [
            identity
            | {
                "host": host,
                "second": second,
                "at": started + timedelta(seconds=second),
                "cpu_pct": cpu * (0.6 if place else 1) * draw.uniform(0.9, 1.1),
                "iowait_pct": 30.0 if place == 0 else 5.0,
                "steal_pct": draw.uniform(0, 0.8),
                "rx_bytes_per_s": 4e6 if len(hosts) > 1 else 2e3,
                "tx_bytes_per_s": 4e6 if len(hosts) > 1 else 1e3,
            }
            for second in range(SECONDS)
        ]


def histogram(mean_us: float, ios: int, *, deep: bool = False) -> list[tuple[int, int, int]]:
    """(lower, upper, count) in fio's buckets of a body, a shoulder and a tail of latencies."""
    parts = [(0.985, mean_us * 0.97, 0.5 if deep else 0.1), (0.014, mean_us * 2.4, 0.3), (0.001, mean_us * 9, 0.5)]

    def below(ns: float) -> float:
        return sum(
            weight * 0.5 * (1 + math.erf((math.log(ns / 1000) - math.log(middle)) / (width * math.sqrt(2))))
            for weight, middle, width in parts
        )

    buckets, counted = [], 0
    for low, high in _edges():
        reached = round(ios * below(high))
        if reached > counted:
            buckets.append((low, high, reached - counted))
            counted = reached
    return buckets


def _edges() -> Iterator[tuple[int, int]]:
    for exponent in range(7, 25):
        for step in range(64):
            low = 2 ** (exponent + 6) + step * 2**exponent
            yield low, low + 2**exponent
