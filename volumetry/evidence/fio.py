"""fio's json+ output and its logs."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from volumetry.errors import EvidenceMissing
from volumetry.evidence.latency import US, Direction, Load, Operation, Window, windows_of

DIRECTIONS = ("read", "write", "trim")
# Logs of a failure's load give the time of day (log_unix_epoch), in milliseconds; others the time since the start.
EPOCH_MS = 10**12


def parse_fio(text: bytes) -> Load:
    """fio's json+ output, whatever notes stand before it; raises EvidenceMissing when there is none."""
    data = read_json(text)
    directions: dict[str, Direction] = {}
    for job in data["jobs"]:
        for name in DIRECTIONS:
            if job.get(name, {}).get("total_ios"):
                _add(directions.setdefault(name, Direction()), job[name])
    return Load(directions, max((job["error"] for job in data["jobs"]), default=0))


def read_json(text: bytes) -> dict[str, Any]:
    """The document, behind whatever notes; raises EvidenceMissing."""
    content = text.decode("utf-8", "replace")
    start = content.find("{")
    try:
        data: dict[str, Any] = json.JSONDecoder().raw_decode(content[max(start, 0) :])[0]
        data["jobs"][0:0]
    except (ValueError, KeyError, TypeError):
        raise EvidenceMissing("fio wrote no result") from None
    return data


def _add(direction: Direction, stats: Mapping[str, Any]) -> None:
    """Add one job's statistics of a direction, as fio's json+ gives them."""
    direction.ios = (direction.ios or 0) + stats["total_ios"]
    direction.io_bytes += stats["io_bytes"]
    direction.iops = (direction.iops or 0.0) + stats["iops"]
    direction.bw_bytes_per_s += stats["bw_bytes"]
    direction.run_s = max(direction.run_s, stats["runtime"] / 1000)
    # lat_percentiles=1 moves the buckets from clat_ns to lat_ns; both are then completion as the job saw it.
    clat = next((stats[key] for key in ("clat_ns", "lat_ns") if stats.get(key, {}).get("bins")), None)
    if clat is None:
        return
    direction.clat_sum_ns += clat["mean"] * clat["N"]
    direction.clat_n += clat["N"]
    direction.clat_max_ns = max(direction.clat_max_ns or 0, clat["max"])
    for midpoint, count in clat["bins"].items():
        direction.buckets[int(midpoint)] += count


def read_load(files: Mapping[str, bytes], window_s: float) -> Load:
    """A host's fio run with its logs; raises EvidenceMissing when fio left no result."""
    load = parse_fio(files.get("fio.json", b""))
    iops, bandwidth, clat = (files.get(f"log_{name}.log", b"") for name in ("iops", "bw", "clat"))
    operations = parse_operations(clat)
    if operations:
        told = replace(load, operations=operations)
        return replace(told, windows=windows_of(operations, told.began_s or 0.0, window_s))
    return replace(load, windows=parse_logs(iops, bandwidth, clat, window_s))


def parse_operations(clat: bytes) -> list[Operation]:
    """Every completion of a latency log with the time of day, in order of time; none of any other log."""
    rows = [line.split(",") for line in clat.decode("ascii", "replace").splitlines()]
    if not rows or int(rows[0][0]) < EPOCH_MS:
        return []
    found = [Operation(int(row[0]) / 1000, int(row[1]), DIRECTIONS[int(row[2])], int(row[3])) for row in rows]
    return sorted(found)


def parse_logs(iops: bytes, bandwidth: bytes, clat: bytes, window_s: float) -> list[Window]:
    """The rate and latency logs as windows. The last window may be shorter than the others: fio says rates.

    Jobs append to one log, each its own rows: rates add up, and a window's latency is the mean weighted by rate,
    which needs the rows of both logs to agree; where they do not, it is missing.
    """
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    widths: dict[tuple[str, int], float] = defaultdict(float)
    latencies: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in _rows(iops, window_s):
        rates[line[0]].append(line[1])
    for key, value in _rows(bandwidth, window_s):
        widths[key] += value * 1024  # the log is in KiB/s
    for key, value in _rows(clat, window_s):
        latencies[key].append(value / US)
    return [
        Window(*key, sum(values), widths[key], _weighted_mean(latencies.get(key, []), values))
        for key, values in sorted(rates.items())
    ]


def _rows(log: bytes, window_s: float) -> Iterable[tuple[tuple[str, int], float]]:
    """((direction, window), value) of each row ``time_ms, value, direction, ...``."""
    for line in log.decode("ascii", "replace").splitlines():
        time_ms, value, direction = line.split(",")[:3]
        number = max(0, round(int(time_ms) / 1000 / window_s) - 1)
        yield (DIRECTIONS[int(direction)], number), float(value)


def _weighted_mean(values: list[float], weights: list[float]) -> float | None:
    if not values or len(values) != len(weights) or sum(weights) == 0:
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
