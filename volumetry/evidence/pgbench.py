"""pgbench's report and its per-transaction log."""

import re
from collections.abc import Iterable, Mapping

from volumetry.errors import EvidenceMissing
from volumetry.evidence.latency import Direction, Load, Operation, windows_of

TRANSACTION = "transaction"
# Since PostgreSQL 14 connecting is left out and told apart; before, both rates stood there.
_RATE = re.compile(r"^tps = ([\d.]+) \((without initial connection time|excluding connections establishing)", re.M)
_RATE_WITH = re.compile(r"^tps = ([\d.]+) \((?:including connections establishing|including reconnection times)", re.M)
_PROCESSED = re.compile(r"^number of transactions actually processed: (\d+)", re.M)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.M)
_CONNECTING = re.compile(r"^initial connection time = ([\d.]+) ms", re.M)


def read_load(files: Mapping[str, bytes], window_s: float) -> Load:
    """A host's pgbench run with its log; raises EvidenceMissing when pgbench left no report."""
    logs = [content for name, content in sorted(files.items()) if name.startswith("pgbench_log")]
    return parse_pgbench(files.get("pgbench.out", b""), logs, window_s)


def parse_pgbench(report: bytes, logs: Iterable[bytes], window_s: float) -> Load:
    """The report's rates, and the latencies of every transaction of the logs, one a thread."""
    text = report.decode("utf-8", "replace")
    processed, rate = _number(_PROCESSED, text), _number(_RATE, text)
    if processed is None or rate is None:
        raise EvidenceMissing("pgbench wrote no result")
    operations = sorted(operation for log in logs for operation in _operations(log))
    failed = _number(_FAILED, text)
    load = Load(
        directions={TRANSACTION: _direction(int(processed), rate, operations)} if processed else {},
        operations=operations,
        tps_with_connections=_with_connections(text, processed, rate),
        failed=None if failed is None else int(failed),
    )
    load.windows.extend(windows_of(operations, load.began_s or 0.0, window_s))
    return load


def _direction(processed: int, rate: float, operations: Iterable[Operation]) -> Direction:
    direction = Direction(ios=processed, iops=rate, run_s=processed / rate)
    direction.add_latencies(operation.latency_ns for operation in operations)
    return direction


def _with_connections(text: str, processed: float, rate: float) -> float | None:
    """As the report says it, or by the connection time that it says; None where it says neither."""
    told, connecting_ms = _number(_RATE_WITH, text), _number(_CONNECTING, text)
    if told is not None or connecting_ms is None or not rate:
        return told
    return processed / (processed / rate + connecting_ms / 1000)


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return None if match is None else float(match[1])


def _operations(log: bytes) -> Iterable[Operation]:
    """``client transaction time_us script epoch_s epoch_us ...``; one that failed has a word for its time."""
    for line in log.decode("ascii", "replace").splitlines():
        parts = line.split()
        if parts[2].isdigit():
            yield Operation(int(parts[4]) + int(parts[5]) / 1e6, int(parts[2]) * 1000, TRANSACTION, 0)
