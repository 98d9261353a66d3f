"""From an attempt's evidence to its verdict and the rows of the tables."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from volumetry.commands import Host
from volumetry.evidence import Direction, HostEvidence, Sample, Usage, Window, bucket_bounds_ns, usage
from volumetry.evidence.failure import Course, Event, Writes, course, writes
from volumetry.plan import Plan, PlannedLoad, PlannedTrial, log_window_s
from volumetry.statistics import steady_state
from volumetry.verdicts import Facts, Struck, Verdict, judge

ROUNDS = 5

Row = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """Which attempt this is, and what is known of it without its evidence."""

    execution: str
    number: int
    plan: Plan
    trial: PlannedTrial
    hosts: Sequence[Host]
    region: str
    evidence: str  # key prefix

    @property
    def clients(self) -> list[str]:
        return self.plan.topologies[self.trial.topology].clients

    @property
    def load(self) -> PlannedLoad:
        return self.plan.workloads[self.trial.workload]


@dataclass(frozen=True)
class Committed:
    """What an attempt came to; ``iops`` and ``run_s`` are None where nothing was measured. ``whole``: the mirror was so
    in the end, and its legs are alike as far as is known; what is not serves no further trial."""

    verdict: Verdict
    rows: dict[str, list[Row]]
    iops: float | None
    run_s: float | None
    whole: bool = True

    @property
    def figure(self) -> str:
        """The rate as a person reads it, with the unit of its tool; empty where nothing was measured."""
        row = self.rows["trials"][0]
        if row["tool"] == "dbench":
            rate = row.get("bw_bytes_per_s")
            return "" if rate is None else f"{rate / 1e6:,.1f} MB/s"
        unit = "TPS" if row["tool"] == "pgbench" else "IOPS"
        return "" if self.iops is None else f"{self.iops:,.0f} {unit}"


def without_evidence(attempt: Attempt, verdict: Verdict) -> Committed:
    """An attempt that left nothing to read: one row, without a direction."""
    row = _trial_row(attempt, verdict) | {"direction": None}
    return Committed(verdict, {"trials": [row]}, None, None)


def from_evidence(attempt: Attempt, evidence: Mapping[str, HostEvidence]) -> Committed:
    """The verdict and rows of an attempt; ``evidence`` holds every host of the topology."""
    clients = [evidence[name] for name in attempt.clients]
    directions = _merged(clients)
    run_s = max((direction.run_s for direction in directions.values()), default=None)
    started_s, ended_s = _span(clients, run_s)
    busy = {name: _measured(host.samples, started_s, ended_s) for name, host in evidence.items()}
    seconds = _seconds(clients, attempt)
    steadiness = steady_state(_rounds(seconds)) if len(seconds) >= ROUNDS else None
    struck = _struck(attempt, evidence, started_s, ended_s)
    facts = replace(_facts(attempt, evidence, directions, steadiness, busy), struck=struck)
    verdict = judge(facts)
    common = _trial_row(attempt, verdict) | _provenance(attempt, evidence) | _struck_row(struck) | {
        "started_at": _moment(started_s),
        "ended_at": _moment(ended_s),
        "run_s": run_s,
        "steady": None if steadiness is None else steadiness.steady,
        "steady_range_pct": None if steadiness is None else steadiness.range_pct,
        "steady_slope_pct": None if steadiness is None else steadiness.slope_pct,
        "cpu_pct": _mean_cpu([busy[name] for name in attempt.clients]),
        "peer_cpu_pct": _mean_cpu([busy[name] for name in evidence if name not in attempt.clients]),
        "tps_with_connections": _sum([client.load.tps_with_connections for client in clients if client.load]),
        "transactions_failed": _sum([client.load.failed for client in clients if client.load]),
    }  # fmt: skip
    identity = _identity(attempt)
    alone = _alone(clients)
    rows = {
        "trials": [
            common | _direction_row(name, direction) | {"alone_clat_p50_us": alone.get(name)}
            for name, direction in directions.items()
        ]
        or [common | {"direction": None}],
        "intervals": _interval_rows(identity, clients, attempt, started_s),
        "histograms": _histogram_rows(identity, directions),
        "hosts": [row for name, host in evidence.items() for row in _host_rows(identity, name, host, started_s, run_s)],
        "events": [row for name, host in evidence.items() for row in _event_rows(identity, name, host, started_s)],
    }
    whole = not facts.mirror_broken and (struck is None or struck.writes.legs_identical is not False)
    return Committed(verdict, rows, facts.iops, run_s, whole)


def _merged(clients: Sequence[HostEvidence]) -> dict[str, Direction]:
    merged: dict[str, Direction] = {}
    for client in clients:
        for name, direction in (client.load.directions if client.load else {}).items():
            merged.setdefault(name, Direction()).merge(direction)
    return merged


def _span(clients: Sequence[HostEvidence], run_s: float | None) -> tuple[float | None, float | None]:
    """When the measured part began and ended: by the operations themselves where they are told one by one, else by
    the moment at which the tool had ended."""
    began = [client.load.began_s for client in clients if client.load and client.load.began_s is not None]
    if began and run_s is not None:
        return min(began), min(began) + run_s
    ended_s = max((client.ended_s for client in clients if client.ended_s is not None), default=None)
    return (None if ended_s is None or run_s is None else ended_s - run_s), ended_s


def _alone(clients: Sequence[HostEvidence]) -> dict[str, float | None]:
    """Median latency of each direction with the peer disconnected, microseconds."""
    merged: dict[str, Direction] = {}
    for client in clients:
        for name, direction in (client.alone.directions if client.alone else {}).items():
            merged.setdefault(name, Direction()).merge(direction)
    return {name: direction.percentile_us(0.5) for name, direction in merged.items()}


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _struck(
    attempt: Attempt, evidence: Mapping[str, HostEvidence], started_s: float | None, ended_s: float | None
) -> Struck | None:
    """What the failure did, or None in a trial without one, or without times."""
    failure = attempt.load.failure
    if failure is None or started_s is None or ended_s is None:
        return None
    clients = [evidence[name] for name in attempt.clients]
    times = sorted(one.at_s for client in clients if client.load for one in client.load.operations)
    states = next((client.states for client in clients if client.states), [])
    events = [event for host in evidence.values() for event in host.events]
    told = course(times, (started_s, ended_s), events, states)
    return Struck(failure.event, (started_s, ended_s), told, _writes(attempt, evidence))


def _writes(attempt: Attempt, evidence: Mapping[str, HostEvidence]) -> Writes:
    known = [
        client.load.directions["write"].ios
        for client in (evidence[name] for name in attempt.clients)
        if client.load and client.remembers and "write" in client.load.directions
    ]
    return writes(
        known[0] if len(known) == 1 else None,
        {name: host.verification for name, host in evidence.items()},
        {name: host.facts.get("leg_sha256") for name, host in evidence.items()},
    )


def _struck_row(struck: Struck | None) -> Row:
    told, kept = (Course(), Writes()) if struck is None else (struck.course, struck.writes)
    return {
        "stall_s": told.stall_s,
        "before_iops": told.before_iops,
        "degraded_iops": told.degraded_iops,
        "resync_s": told.resync_s,
        "resync_iops": told.resync_iops,
        "writes_acknowledged": kept.acknowledged,
        "writes_lost": kept.lost,
        "legs_identical": kept.legs_identical,
    }


def _facts(
    attempt: Attempt,
    evidence: Mapping[str, HostEvidence],
    directions: Mapping[str, Direction],
    steadiness: Any,
    busy: Mapping[str, Usage | None],
) -> Facts:
    clients = [evidence[name] for name in attempt.clients]
    processors = [int(client.facts["processors"]) for client in clients if "processors" in client.facts]
    stolen = [
        use.steal_pct / 100 * int(evidence[name].facts["processors"])
        for name, use in busy.items()
        if use is not None and "processors" in evidence[name].facts
    ]
    broken = [host.facts["mirror_broken"] for host in evidence.values() if host.facts.get("mirror_broken")]
    return Facts(
        iops=_sum([direction.iops for direction in directions.values()]),
        bytes_per_s=sum(direction.bw_bytes_per_s for direction in directions.values()),
        ceilings=attempt.trial.ceilings,
        steadiness=steadiness,
        stolen_processors=max(stolen, default=None),
        processors=max(processors, default=None),
        mirror_broken="; ".join(broken),
        fio_error=max((client.load.error for client in clients if client.load), default=0),
    )


def _seconds(clients: Sequence[HostEvidence], attempt: Attempt) -> list[float]:
    """IOPS of each planned window, over all clients and directions; bytes a second where a tool counts those alone."""
    totals: dict[int, float] = {}
    for window in _windows(clients):
        rate = window.bw_bytes_per_s if window.iops is None else window.iops
        totals[window.number] = totals.get(window.number, 0.0) + rate
    # What is given as a number of operations lasts as long as they take; its last window is cut short.
    planned = round(attempt.load.runtime_s / _window_s(attempt)) if _is_timed(attempt) else _logged(clients) - 1
    return [totals.get(number, 0.0) for number in range(min(planned, _logged(clients)))]


def _is_timed(attempt: Attempt) -> bool:
    return "transactions" not in attempt.load.options


def _windows(clients: Sequence[HostEvidence]) -> list[Window]:
    return [window for client in clients if client.load for window in client.load.windows]


def _logged(clients: Sequence[HostEvidence]) -> int:
    """How many windows the logs cover. Within, one without a row is a standstill: fio writes no row where nothing
    completed; it may leave out the last window of a run, which says nothing."""
    return 1 + max((window.number for window in _windows(clients)), default=-1)


def _window_s(attempt: Attempt) -> float:
    return log_window_s(attempt.load)


def _rounds(windows: list[float]) -> list[float]:
    """The measured part as five rounds of equal length: mean IOPS of each; odd windows at its start are left out."""
    size = len(windows) // ROUNDS
    used = windows[len(windows) - size * ROUNDS :]
    return [statistics.fmean(used[start : start + size]) for start in range(0, len(used), size)]


def _measured(samples: Sequence[Sample], start_s: float | None, end_s: float | None) -> Usage | None:
    """A host's usage over the measured part, from the samples nearest inside it."""
    if start_s is None or end_s is None:
        return None
    inside = [sample for sample in samples if start_s <= sample.time_s <= end_s]
    return usage(inside[0], inside[-1]) if len(inside) > 1 else None


def _mean_cpu(usages: Sequence[Usage | None]) -> float | None:
    known = [use.cpu_pct for use in usages if use is not None]
    return statistics.fmean(known) if known else None


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _identity(attempt: Attempt) -> Row:
    trial = attempt.trial
    return {
        "execution": attempt.execution,
        "campaign": attempt.plan.campaign,
        "topology": trial.topology,
        "stack": attempt.plan.topologies[trial.topology].stack,
        "tuning": trial.tuning,
        "workload": trial.workload,
        "repetition": trial.repetition,
        "trial": trial.id,
        "attempt": attempt.number,
    }


def _trial_row(attempt: Attempt, verdict: Verdict) -> Row:
    """What the plan alone knows of the attempt."""
    trial, load = attempt.trial, attempt.load
    topology = attempt.plan.topologies[trial.topology]
    ceiling = trial.ceilings[0] if trial.ceilings else None
    tuning = attempt.plan.tunings[trial.tuning].model_dump(exclude_none=True)
    return _identity(attempt) | {
        "sequence": trial.sequence,
        "block": trial.block,
        "verdict": verdict.word,
        "reason": verdict.reason,
        "tool": load.tool,
        "failure": None if load.failure is None else load.failure.event,
        "rw": load.option("rw"),
        "bs": load.option("bs", "4k"),
        "iodepth": _whole(load.option("iodepth", "1")),
        "numjobs": _whole(load.option("numjobs", "1")),
        "rwmixread": _whole(load.option("rwmixread")),
        # pgbench and dbench have clients of their own on each host.
        "clients": len(attempt.clients) * int(load.options.get("client", load.options.get("clients", "1"))),
        "ceiling_iops": None if ceiling is None else ceiling.iops,
        "ceiling_cause": None if ceiling is None else ceiling.cause,
        "az_ids": ",".join(host.az_id for host in attempt.hosts) or None,
        "instance_ids": ",".join(host.instance_id for host in attempt.hosts) or None,
        "instance_types": ",".join([topology.instance_type] * len(topology.hosts)),
        "volume_ids": ",".join(dict.fromkeys(host.volume_id for host in attempt.hosts)) or None,
        "volume_type": topology.volume["type"],
        "volume_size_gib": topology.volume["size_gib"],
        "volume_iops": topology.volume.get("iops"),
        "volume_throughput_mibps": topology.volume.get("throughput_mibps"),
        "ami": attempt.hosts[0].image_id if attempt.hosts else None,
        "tuning_values": json.dumps(tuning, sort_keys=True),
        "region": attempt.region,
        "evidence": attempt.evidence,
    }


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _provenance(attempt: Attempt, evidence: Mapping[str, HostEvidence]) -> Row:
    """What only the hosts know: versions, driver, measured round trip."""
    client = evidence[attempt.clients[0]]
    round_trips = [rtt for host in evidence.values() for rtt in host.rtt_us]
    return {
        "os": client.facts.get("os"),
        "kernel": client.facts.get("kernel"),
        "tool_version": client.facts.get(f"{attempt.load.tool}_version"),
        "fio_version": client.facts.get("fio_version"),
        "ioengine": client.facts.get("ioengine"),
        "stack_driver": client.facts.get("stack_driver"),
        "stack_parameters": client.facts.get("stack_parameters"),
        "first_sync_skipped": {"true": True, "false": False}.get(client.facts.get("first_sync_skipped", "")),
        "stack_module": client.facts.get("stack_module"),
        "stack_status": client.facts.get("stack_status"),
        "filesystem": client.facts.get("filesystem"),
        "mount_options": client.facts.get("mount_options"),
        "host_kind": client.facts.get("host_kind"),
        "rtt_us": statistics.median(round_trips) if round_trips else None,
    }


def _direction_row(name: str, direction: Direction) -> Row:
    return {
        "direction": name,
        "ios": direction.ios,
        "io_bytes": direction.io_bytes,
        "iops": direction.iops,
        "bw_bytes_per_s": direction.bw_bytes_per_s,
        "clat_mean_us": direction.clat_mean_us,
        "clat_p50_us": direction.percentile_us(0.5),
        "clat_p99_us": direction.percentile_us(0.99),
        "clat_p999_us": direction.percentile_us(0.999),
        "clat_max_us": direction.clat_max_us,
    }


def _interval_rows(
    identity: Row, clients: Sequence[HostEvidence], attempt: Attempt, started_s: float | None
) -> list[Row]:
    """One row a second and direction, from windows that may be shorter than a second."""
    width = _window_s(attempt)
    logged, a_second = _logged(clients), round(1 / width)
    by_second: dict[tuple[str, int], list[Window]] = {}
    for window in _windows(clients):
        by_second.setdefault((window.direction, window.number // a_second), []).append(window)
    rows = []
    for direction in sorted({direction for direction, _ in by_second}):
        for second in range(math.ceil(logged / a_second)):
            windows = by_second.get((direction, second), [])
            # Rates of a second's windows: their mean over time, their sum over hosts.
            count = min(a_second, logged - second * a_second)
            rows.append(
                identity
                | {
                    "direction": direction,
                    "second": second,
                    "at": _moment(None if started_s is None else started_s + second),
                    "iops": _mean_iops(windows, count),
                    "bw_bytes_per_s": sum(window.bw_bytes_per_s for window in windows) / count,
                    "clat_mean_us": _weighted_clat(windows),
                }
            )
    return rows


def _mean_iops(windows: Sequence[Window], count: int) -> float | None:
    """A second without a window is a standstill; one whose windows tell no operations is not known."""
    total = _sum([window.iops for window in windows])
    return None if total is None and windows else (total or 0.0) / count


def _weighted_clat(windows: Sequence[Window]) -> float | None:
    known = [
        (window.clat_mean_us, window.iops)
        for window in windows
        if window.clat_mean_us is not None and window.iops is not None
    ]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _histogram_rows(identity: Row, directions: Mapping[str, Direction]) -> list[Row]:
    rows = []
    for name, direction in directions.items():
        for midpoint in sorted(direction.buckets):
            lower, upper = bucket_bounds_ns(midpoint)
            bucket = {"lower_ns": lower, "upper_ns": upper, "n": direction.buckets[midpoint]}
            rows.append(identity | {"direction": name} | bucket)
    return rows


def _event_rows(identity: Row, name: str, host: HostEvidence, started_s: float | None) -> list[Row]:
    listed: list[Event] = sorted([*host.events, *host.states], key=lambda event: event.at_s)
    return [
        identity
        | {
            "host": name,
            "at": _moment(event.at_s),
            "second": None if started_s is None else event.at_s - started_s,
            "event": event.name,
            "detail": event.detail or None,
        }
        for event in listed
    ]


def _host_rows(identity: Row, name: str, host: HostEvidence, started_s: float | None, run_s: float | None) -> list[Row]:
    """One row a second of the measured part; none where it is not known when that was."""
    rows: dict[int, Row] = {}
    if started_s is None or run_s is None:
        return []
    for first, last in zip(host.samples, host.samples[1:], strict=False):
        use = usage(first, last)
        second = int((first.time_s + last.time_s) / 2 - started_s)
        if use is None or first.time_s < started_s - 0.5 or second >= run_s or second in rows:
            continue
        rows[second] = identity | {
            "host": name,
            "second": second,
            "at": _moment(use.start_s),
            "cpu_pct": use.cpu_pct,
            "user_pct": use.user_pct,
            "system_pct": use.system_pct,
            "iowait_pct": use.iowait_pct,
            "steal_pct": use.steal_pct,
            "rx_bytes_per_s": use.rx_bytes_per_s,
            "tx_bytes_per_s": use.tx_bytes_per_s,
            "memory_used_bytes": use.memory_used_bytes,
        }
    return list(rows.values())
