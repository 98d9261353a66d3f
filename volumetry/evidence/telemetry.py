"""A host's counters while a load runs, and what they say between two readings."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One reading of a host's counters, at ``time_s`` (Unix time); CPU in clock ticks over all processors."""

    time_s: float
    user: int
    system: int
    idle: int
    iowait: int
    steal: int
    rx_bytes: int
    tx_bytes: int
    memory_used_bytes: int | None

    @property
    def ticks(self) -> int:
        return self.user + self.system + self.idle + self.iowait + self.steal


def parse_telemetry(text: bytes) -> list[Sample]:
    """The samples in order of time; a sample that was cut short is left out."""
    blocks = re.split(r"^time ", text.decode("ascii", "replace"), flags=re.MULTILINE)[1:]
    return [sample for sample in map(_sample, blocks) if sample is not None]


def _sample(block: str) -> Sample | None:
    """None: it was cut short, as by a full disk, and what came next stands in its line."""
    lines = block.splitlines()
    try:
        # user nice system idle iowait irq softirq steal (proc(5))
        ticks = [int(value) for value in next(line for line in lines if line.startswith("cpu ")).split()[1:9]]
        memory = {name: int(value) * 1024 for name, value in re.findall(r"^(Mem\w+): +(\d+)", block, re.MULTILINE)}
        links = [line.split(":")[1].split() for line in lines if re.match(r" *(ens|eth|enp)\d", line)]
        return Sample(
            time_s=float(lines[0]),
            user=ticks[0] + ticks[1],
            system=ticks[2] + ticks[5] + ticks[6],
            idle=ticks[3],
            iowait=ticks[4],
            steal=ticks[7],
            rx_bytes=sum(int(link[0]) for link in links),
            tx_bytes=sum(int(link[8]) for link in links),
            memory_used_bytes=memory["MemTotal"] - memory["MemAvailable"] if len(memory) > 1 else None,
        )
    except (StopIteration, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Usage:
    """A host between two samples: shares in per cent of all its processors, rates in bytes a second."""

    start_s: float
    seconds: float
    user_pct: float
    system_pct: float
    iowait_pct: float
    steal_pct: float
    rx_bytes_per_s: float
    tx_bytes_per_s: float
    memory_used_bytes: int | None

    @property
    def cpu_pct(self) -> float:
        return self.user_pct + self.system_pct


def usage(first: Sample, last: Sample) -> Usage | None:
    """What happened between two samples, or None when no time passed on the host's clock, or the host booted."""
    ticks, seconds = last.ticks - first.ticks, last.time_s - first.time_s
    booted = last.user < first.user or last.rx_bytes < first.rx_bytes
    if ticks <= 0 or seconds <= 0 or booted:
        return None

    def share(name: str) -> float:
        spent: int = getattr(last, name) - getattr(first, name)
        return 100 * max(0, spent) / ticks

    return Usage(
        start_s=first.time_s,
        seconds=seconds,
        user_pct=share("user"),
        system_pct=share("system"),
        iowait_pct=share("iowait"),
        steal_pct=share("steal"),
        rx_bytes_per_s=(last.rx_bytes - first.rx_bytes) / seconds,
        tx_bytes_per_s=(last.tx_bytes - first.tx_bytes) / seconds,
        memory_used_bytes=last.memory_used_bytes,
    )
