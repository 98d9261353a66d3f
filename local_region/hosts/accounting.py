"""The /proc/stat that a process host sees: its own CPU time, and what others took from it as steal.

user and system are those of the host's own processes, its dead ones included. steal is what the machine
spent on processes outside this region: foreign disturbance, as a noisy neighbour is on EC2. What the rest of the
region uses (other hosts, network, volumes, control plane) is neither, and shows as idle.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PERIOD_S = 0.5
# The machine's count and the region's own are taken moments apart, so the second may run ahead for a while; what
# it may be ahead is bounded, lest a lasting difference hide a disturbance.
_DEBT_TICKS = 10


@dataclass(frozen=True)
class Usage:
    """CPU time in ticks."""

    user: int = 0
    system: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.user + other.user, self.system + other.system)


@dataclass(frozen=True)
class Process:
    parent: int
    usage: Usage


@dataclass(frozen=True)
class Machine:
    """`busy` and `elapsed` in ticks, summed over the cores; `counters` are lines to be passed on."""

    cores: int
    busy: int
    elapsed: int
    counters: tuple[str, ...]


def read_process(pid: int) -> Process | None:
    """A process, its usage with that of the children it has reaped; None: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold anything: count from its end. See proc(5).
    fields = text[text.rindex(b")") + 2 :].split(None, 15)
    user, system, reaped_user, reaped_system = map(int, fields[11:15])
    return Process(int(fields[1]), Usage(user + reaped_user, system + reaped_system))


def read_machine(text: str) -> Machine:
    """From the text of the machine's own /proc/stat."""
    lines = text.splitlines()
    cpu = [line for line in lines if line.startswith("cpu")]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, cpu[0].split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    counters = tuple(line for line in lines if line.startswith(("ctxt ", "btime ", "processes ")))
    return Machine(len(cpu) - 1, busy, busy + idle + iowait, counters)


def descendants(processes: dict[int, Process], root: int) -> set[int]:
    """`root`, if it exists, and every process below it."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    todo = [root] if root in processes else []
    while todo:
        pid = todo.pop()
        found.add(pid)
        todo += children.get(pid, ())
    return found


def total(processes: Iterable[Process]) -> Usage:
    return sum((process.usage for process in processes), Usage())


class Census:
    """The processes of a region: `root` and all that descend from it.

    A process once seen to be foreign stays so: each look reads only the region's own and new ones.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._foreign: set[int] = set()

    def take(self) -> dict[int, Process]:
        pids = {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
        self._foreign &= pids
        found = {pid: process for pid in pids - self._foreign if (process := read_process(pid))}
        ours = descendants(found, self._root)
        self._foreign |= found.keys() - ours
        return {pid: found[pid] for pid in ours}


class Foreign:
    """Ticks that the machine spent outside the region; never falls."""

    def __init__(self, busy: int, region: int) -> None:
        self._busy, self._region = busy, region
        self._balance = 0
        self.ticks = 0

    def update(self, busy: int, region: int) -> None:
        # A region that has used less than before lost a child uncounted: nothing is known of this period.
        if region >= self._region:
            self._balance += (busy - self._busy) - (region - self._region)
        self._busy, self._region = busy, region
        self._balance = max(self._balance, self.ticks - _DEBT_TICKS)
        self.ticks = max(self.ticks, self._balance)


class HostStat:
    """One host's /proc/stat, counted from its launch. No figure in it ever falls."""

    def __init__(self, root: int, descriptor: int, elapsed: int, foreign: int) -> None:
        self.root = root
        self._descriptor = descriptor
        self._elapsed, self._foreign = elapsed, foreign
        self._user = self._system = self._idle = 0

    def write(self, own: Usage, machine: Machine, foreign: int) -> None:
        self._user, self._system = max(self._user, own.user), max(self._system, own.system)
        steal = foreign - self._foreign
        idle = machine.elapsed - self._elapsed - self._user - self._system - steal
        self._idle = max(self._idle, idle)
        text = _proc_stat(machine, self._user, self._system, self._idle, steal)
        # No number shrinks, so neither does the text, and it can be overwritten in place.
        os.pwrite(self._descriptor, text.encode(), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def _proc_stat(machine: Machine, user: int, system: int, idle: int, steal: int) -> str:
    """Cores share alike: on which of them a process ran is not told apart."""

    def line(name: str, share: int) -> str:
        return f"{name} {user // share} 0 {system // share} {idle // share} 0 0 0 {steal // share} 0 0"

    cores = (line(f"cpu{number}", machine.cores) for number in range(machine.cores))
    end = ("procs_running 1", "procs_blocked 0", "")
    return "\n".join((line("cpu ", 1), *cores, "intr 0", *machine.counters, *end))


class Accounting:
    """Rewrites the hosts' /proc/stat every `PERIOD_S`."""

    def __init__(self) -> None:
        self._census = Census(os.getpid())
        self._foreign = Foreign(_machine().busy, self._region(self._census.take()))
        self._hosts: dict[str, HostStat] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="accounting", daemon=True)
        self._thread.start()

    def add(self, host: str, root: int, descriptor: int) -> None:
        """Count `root` and all below it as the host's; `descriptor` is its /proc/stat, and is taken over."""
        with self._lock:
            self._hosts[host] = HostStat(root, descriptor, _machine().elapsed, self._foreign.ticks)
            self._sample()

    def remove(self, host: str) -> None:
        with self._lock:
            if stat := self._hosts.pop(host, None):
                stat.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._ended.wait(PERIOD_S):
            with self._lock:
                self._sample()

    def _sample(self) -> None:
        machine, processes = _machine(), self._census.take()
        self._foreign.update(machine.busy, self._region(processes))
        for stat in self._hosts.values():
            own = total(processes[pid] for pid in descendants(processes, stat.root))
            stat.write(own, machine, self._foreign.ticks)

    @staticmethod
    def _region(processes: dict[int, Process]) -> int:
        usage = total(processes.values())
        return usage.user + usage.system


def _machine() -> Machine:
    return read_machine(Path("/proc/stat").read_text())
