"""A made-up execution of a DRBD mirror: what the ladder's has not. Failures under load, a path taken apart, other tools
than fio, a published study beside it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import synthetic
from synthetic import BEGAN, EXECUTION, Row, Rows, Synthetic

from volumetry.plan import LOCAL_GUESTS, Plan, PlannedTrial, plan
from volumetry.reading import check_campaign
from volumetry.report.model import Report
from volumetry.tables import TABLES

CAMPAIGN: dict[str, Any] = {
    "campaign": "drbd-study",
    "description": "DRBD beside a volume of its own; the path of a write; failures under load.",
    "repetitions": 3,
    "ladder": ["plain", "mirror"],
    "topologies": {
        "plain": {"stack": "local", "filesystem": "ext4"},
        "mirror": {"stack": "drbd", "azs": ["a", "b"], "filesystem": "ext4"},
        "raw-mirror": {"stack": "drbd", "azs": ["a", "b"]},
    },
    "tunings": {"stock": {}, "nobarrier": {"filesystem": {"barrier": False}}},
    "workloads": {
        "pgbench": {"pgbench": {"client": 10, "transactions": 1000}},
        "dbench-5": {"dbench": {"clients": 5, "timelimit": 30}},
        "path-4k": {"fio": {"rw": "randwrite", "size": "64m", "runtime": "5s"}, "decompose": True},
        "cut-all-links": {
            "fio": {"rw": "randwrite", "size": "512m", "runtime": "40s"},
            "failure": {"event": "cut-all-links", "at": "8s", "lasts": "10s"},
        },
        "kill-peer": {
            "fio": {"rw": "randwrite", "size": "512m", "runtime": "40s"},
            "failure": {"event": "kill-peer", "at": "8s"},
        },
        "freeze-peer": {
            "fio": {"rw": "randwrite", "size": "512m", "runtime": "40s"},
            "failure": {"event": "freeze-peer", "at": "8s", "lasts": "10s"},
        },
    },
    "published": {
        "source": "DRBD 9 on EC2: three t2.medium, protocol C, pgbench -c 10 -t 1000",
        "differs": "DRBD 9 there; one run, no repetitions.",
        "ratios": [
            {"workload": "pgbench", "topology": "mirror", "base": "plain", "percent": 26.9},
            {"workload": "dbench-5", "topology": "raw-mirror", "base": "plain", "percent": 50},
        ],
    },
    "matrix": [
        {"topologies": ["plain", "mirror"], "workloads": ["pgbench", "dbench-5"], "tunings": ["stock"]},
        {"topologies": ["plain"], "workloads": ["dbench-5"], "tunings": ["nobarrier"]},
        {"topologies": ["raw-mirror"], "workloads": ["path-4k"], "tunings": ["stock"]},
        {
            "topologies": ["raw-mirror"],
            "workloads": ["cut-all-links", "kill-peer", "freeze-peer"],
            "tunings": ["stock"],
            "repetitions": 1,
        },
    ],
}

TPS = {"plain": 640.0, "mirror": 174.0}
BYTES_PER_S = {"plain": 198.4e6, "mirror": 61.2e6}
WHOLE = "Connected Primary/Secondary UpToDate/UpToDate oos=0"
APART = "WFConnection Primary/Unknown UpToDate/DUnknown oos="
COPYING = "SyncSource Primary/Secondary UpToDate/Inconsistent oos="


@dataclass(frozen=True)
class Ordeal:
    """A failure as it was put in, seconds of the load; rates in operations a second."""

    stall_s: float
    back_s: float
    resync_end_s: float | None
    checked: bool
    lost: int = 0
    before: float = 800.0
    degraded: float = 1400.0
    resync: float = 300.0


ORDEALS = {
    "cut-all-links": Ordeal(stall_s=6.2, back_s=18.0, resync_end_s=24.5, checked=True),
    "kill-peer": Ordeal(stall_s=5.8, back_s=27.3, resync_end_s=35.1, checked=True, lost=2),
    "freeze-peer": Ordeal(stall_s=10.4, back_s=18.0, resync_end_s=None, checked=False),
}


@cache
def study() -> Synthetic:
    """The execution, made once for all tests."""
    folder = Path(synthetic.KEPT.name) / "drbd"
    planned = plan(check_campaign(CAMPAIGN), LOCAL_GUESTS)
    rows: Rows = {name: [] for name in TABLES}
    for trial in planned.trials:
        began = BEGAN + timedelta(seconds=90 * trial.sequence)
        _tell(rows, planned, trial, began.replace(tzinfo=None))
    synthetic.write(folder, rows)
    return Synthetic(planned, rows, synthetic.port(folder), folder)


@cache
def study_report() -> Report:
    """Its report."""
    return synthetic.analyse(study())


def _tell(rows: Rows, planned: Plan, trial: PlannedTrial, began: datetime) -> None:
    topology, load = planned.topologies[trial.topology], planned.workloads[trial.workload]
    identity = {
        "execution": EXECUTION,
        "campaign": planned.campaign,
        "topology": trial.topology,
        "stack": topology.stack,
        "tuning": trial.tuning,
        "workload": trial.workload,
        "repetition": trial.repetition,
        "trial": trial.id,
        "attempt": 1,
    }
    mirror = topology.stack == "drbd"
    common = identity | {
        "sequence": trial.sequence,
        "block": trial.block,
        "verdict": "valid",
        "reason": "",
        "tool": load.tool,
        "failure": load.failure and load.failure.event,
        "started_at": began,
        "ended_at": began + timedelta(seconds=load.runtime_s),
        "run_s": load.runtime_s,
        "cpu_pct": 21.0,
        "peer_cpu_pct": 9.0 if mirror else None,
        "rtt_us": 1010.0 + trial.repetition if mirror else None,
        "instance_types": ",".join(["m6i.large"] * len(topology.hosts)),
        "volume_type": topology.volume["type"],
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0-32-amd64",
        "filesystem": topology.filesystem,
        "mount_options": topology.filesystem and f"rw,relatime{',nobarrier' if trial.tuning == 'nobarrier' else ''}",
        "stack_driver": "DRBD 8.4.11, in-tree module (srcversion 211FB288A383ED945B83420)" if mirror else "none",
        "stack_status": f"0: cs:Connected ro:Primary/Secondary ns:{1000 * trial.sequence}" if mirror else None,
        "stack_parameters": json.dumps({"protocol": "C", "max-buffers": "2048"}) if mirror else None,
        "tuning_values": json.dumps({"barrier": "no"} if trial.tuning == "nobarrier" else {}),
        "first_sync_skipped": True if mirror else None,
        "host_kind": "guest",
        "region": "local",
    }
    wobble = 1 + 0.01 * (trial.repetition - 2)
    if load.tool == "pgbench":
        tps = TPS[trial.topology] * wobble
        figures: Row = {"iops": tps, "tps_with_connections": 0.98 * tps, "clat_mean_us": 1e7 / tps}
        _common_rows(rows, identity, common | figures | {"direction": "transaction", "ios": 10_000}, "iops", tps)
        rows["histograms"] += [
            identity | {"direction": "transaction", "lower_ns": low, "upper_ns": high, "n": n}
            for low, high, n in synthetic.histogram(1e7 / tps, 10_000)
        ]
    elif load.tool == "dbench":
        width = BYTES_PER_S[trial.topology] * wobble
        figures = {"bw_bytes_per_s": width, "clat_max_us": 211_000.0, "direction": "transaction"}
        _common_rows(rows, identity, common | figures, "bw_bytes_per_s", width)
    elif load.failure is None:
        figures = {
            "iops": 520.0,
            "clat_p50_us": 1890.0 + trial.repetition,
            "alone_clat_p50_us": 640.0 + trial.repetition,
        }
        _common_rows(rows, identity, common | figures | {"direction": "write"}, "iops", 520.0)
    else:
        _fail(rows, identity, common | {"direction": "write"}, ORDEALS[trial.workload], load.failure.at_s)


def _common_rows(rows: Rows, identity: Row, trial: Row, column: str, rate: float) -> None:
    rows["trials"].append(trial)
    rows["intervals"] += [
        identity | {"direction": trial["direction"], "second": second, column: rate * (1 + 0.02 * (second % 3 - 1))}
        for second in range(int(trial["run_s"]))
    ]
    rows["hosts"] += [
        identity | {"host": "host1", "second": second, "cpu_pct": 21.0, "iowait_pct": 40.0, "steal_pct": 0.0}
        for second in range(int(trial["run_s"]))
    ]


def _fail(rows: Rows, identity: Row, trial: Row, ordeal: Ordeal, at_s: float) -> None:
    rows["trials"].append(
        trial
        | {
            "reason": f"{trial['failure']}: nothing completed for {ordeal.stall_s} s at most",
            "iops": ordeal.before,
            "stall_s": ordeal.stall_s,
            "before_iops": ordeal.before,
            "degraded_iops": ordeal.degraded,
            "resync_s": ordeal.resync_end_s and ordeal.resync_end_s - ordeal.back_s,
            "resync_iops": ordeal.resync if ordeal.resync_end_s else None,
            "writes_acknowledged": 31_337 if ordeal.checked else None,
            "writes_lost": ordeal.lost if ordeal.checked else None,
            "legs_identical": not ordeal.lost if ordeal.checked else None,
        }
    )
    rows["intervals"] += [
        identity | {"direction": "write", "second": second, "iops": rate}
        for second, rate in enumerate(_rates(ordeal, at_s))
    ]
    told = sorted(_events(ordeal, at_s, trial["failure"]))
    rows["events"] += [
        identity
        | {
            "host": host,
            "at": trial["started_at"] + timedelta(seconds=second),
            "second": second,
            "event": event,
            "detail": detail,
        }
        for second, host, event, detail in told
    ]


def _rates(ordeal: Ordeal, at_s: float) -> Iterator[float]:
    for second in range(40):
        if second < at_s:
            yield ordeal.before
        elif second < at_s + ordeal.stall_s:
            yield 0.0
        elif second < ordeal.back_s:
            yield ordeal.degraded
        else:
            yield ordeal.resync if second < (ordeal.resync_end_s or 0) else ordeal.before


def _events(ordeal: Ordeal, at_s: float, failure: str) -> Iterator[tuple[float, str, str, str]]:
    yield -3.0, "host1", "state", WHOLE
    yield at_s, "host2", "fault-begin", f"{failure} 10.0.0.4"
    yield at_s + ordeal.stall_s, "host1", "state", f"{APART}0"
    yield at_s + ordeal.stall_s + 1, "host1", "state", f"{APART}812"
    yield ordeal.back_s, "host2", "fault-end", failure
    if ordeal.resync_end_s is not None:
        yield ordeal.back_s + 0.2, "host1", "state", f"{COPYING}81920"
        yield ordeal.back_s + 0.4, "host1", "state", f"{COPYING}61440"
        yield ordeal.resync_end_s, "host1", "state", WHOLE
    if ordeal.checked:
        yield 55.0, "host2", "verify-begin", "peer"
        yield 59.5, "host2", "verify-end", "peer"
