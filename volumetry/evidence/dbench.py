"""dbench's report: throughput alone, and the largest latency."""

import re
from collections.abc import Mapping

from volumetry.errors import EvidenceMissing
from volumetry.evidence.latency import Direction, Load, Window

TRANSACTION = "transaction"
# "Throughput 340.566 MB/sec  2 clients  2 procs  max_latency=12.009 ms": millions of bytes.
_RESULT = re.compile(r"^Throughput ([\d.]+) MB/sec.*max_latency=([\d.]+) ms", re.M)
# "   2     70640   374.96 MB/sec  execute   1 sec  latency 11.441 ms": the mean since the warm-up's end.
_SECOND = re.compile(r"^ *\d+ +\d+ +([\d.]+) MB/sec +execute +(\d+) sec", re.M)


def read_load(files: Mapping[str, bytes], window_s: float) -> Load:
    """A host's dbench run; raises EvidenceMissing when dbench left no result."""
    return parse_dbench(files.get("dbench.out", b""), window_s)


def parse_dbench(report: bytes, window_s: float) -> Load:
    """Throughput of the measured part and of each of its seconds; dbench counts no operations in that part alone."""
    text = report.decode("utf-8", "replace")
    result = _RESULT.search(text)
    seconds = [(int(second), float(mean)) for mean, second in _SECOND.findall(text)]
    if result is None or not seconds:
        raise EvidenceMissing("dbench wrote no result")
    run_s, rate = float(seconds[-1][0]), float(result[1]) * 1e6
    direction = Direction(io_bytes=round(rate * run_s), bw_bytes_per_s=rate, run_s=run_s)
    direction.clat_max_ns = round(float(result[2]) * 1e6)
    return Load({TRANSACTION: direction}, windows=_windows(seconds, window_s))


def _windows(seconds: list[tuple[int, float]], window_s: float) -> list[Window]:
    """What was moved between two lines is the difference of the means times their seconds."""
    found, moved, before = [], 0.0, 0
    for second, mean in seconds:
        if second == before:
            continue
        rate = (mean * second - moved) / (second - before) * 1e6
        first, last = round(before / window_s), round(second / window_s)
        found += [Window(TRANSACTION, number, None, rate, None) for number in range(first, last)]
        moved, before = mean * second, second
    return found
