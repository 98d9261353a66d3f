"""What a person sees while an execution runs: which topology, which trial, IOPS now, and how long it will take."""

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from volumetry.naming import Keys, TrialId
from volumetry.plan import Plan
from volumetry.results import Results

COLOURS = {
    "valid": "green",
    "capped": "yellow",
    "unsteady": "yellow",
    "degraded": "magenta",
    "failed": "red",
    "indeterminate": "red",
}
_TRIALS_SHOWN = 6


@dataclass
class Watch:
    """What is known of a running execution; ``look`` asks for what is new."""

    execution: str
    objects: Results
    plan: Plan | None = None
    topologies: dict[str, dict[str, Any]] = field(default_factory=dict)
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)  # key of the attempt -> its note
    live: str = ""

    def look(self) -> None:
        keys = Keys(self.execution)
        if self.plan is None:
            content = self.objects.get(keys.plan)
            self.plan = None if content is None else Plan.model_validate_json(content)
            return
        for name in self.plan.topologies:
            if self.topologies.get(name, {}).get("status") not in ("ready", "failed"):
                self.topologies[name] = self.objects.get_json(keys.topology(name)) or {"status": "launching"}
        for key in self.objects.keys(keys.trials):
            if self.trials.get(key, {}).get("state") != "committed":
                self.trials[key] = self.objects.get_json(key) or {}
        self.live = self._live()

    def _live(self) -> str:
        for key in self.running:
            trial, attempt = key.removeprefix(Keys(self.execution).trials).removesuffix(".json").split("/")
            samples = self.objects.keys(Keys(self.execution).attempt(trial, int(attempt)).live)
            return (self.objects.get(samples[-1]) or b"").decode().strip() if samples else ""
        return ""

    @property
    def running(self) -> list[str]:
        return [key for key, note in self.trials.items() if note.get("state") == "running"]

    @property
    def committed(self) -> list[tuple[str, dict[str, Any]]]:
        done = [(key, note) for key, note in self.trials.items() if note.get("state") == "committed"]
        return sorted(done, key=lambda item: item[1].get("opened_at", ""))

    @property
    def left_s(self) -> float | None:
        """Seconds that the trials still to come should take, the longest lane counting; None: no plan yet."""
        if self.plan is None:
            return None
        done = {_trial_of(key) for key, _ in self.committed}
        lanes = dict.fromkeys(self.plan.lanes, 0.0)
        for trial in self.plan.trials:
            if trial.id not in done:
                lanes[trial.lane] += trial.expected_s
        return max(lanes.values())


def _trial_of(key: str) -> str:
    return key.split("/")[3]


class Display:
    """Draws a running execution on a terminal; on anything else it writes a line for each thing that happened."""

    def __init__(self, console: Console, progress: Watch) -> None:
        self._console, self._progress = console, progress
        self._bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("trials"),
            TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
        )  # fmt: skip
        self._task = self._bar.add_task(progress.execution, total=None, left="")
        self._told: set[str] = set()
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Display":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def update(self) -> None:
        """Look, and show what is new."""
        self._progress.look()
        plan, left = self._progress.plan, self._progress.left_s
        if plan is not None:
            self._bar.update(self._task, total=len(plan.trials), completed=len(self._progress.committed),
                             left=f"about {_clock(left or 0)} left")  # fmt: skip
        if not self._console.is_terminal:
            self._tell()

    def _tell(self) -> None:
        for name, note in self._progress.topologies.items():
            if note["status"] in ("ready", "failed"):
                self._once(f"topology {name}: {note['status']} {note.get('reason', '')}".rstrip())
        for number, (key, note) in enumerate(self._progress.committed, start=1):
            total = len(self._progress.plan.trials) if self._progress.plan else 0
            self._once(f"{number}/{total} {_trial_of(key)}: {_told(note)}")

    def _once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._console.print(line, markup=False, highlight=False)

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar, self._topologies()]
        for key in self._progress.running:
            now = f"   now {self._progress.live} IOPS" if self._progress.live else ""
            parts.append(Text(f"▶ {_trial_of(key)}{now}", style="bold cyan"))
        for key, note in self._progress.committed[-_TRIALS_SHOWN:]:
            style = COLOURS.get(note["verdict"], "")
            parts.append(Text(f"  {_trial_of(key)}  {_told(note)}", style=style))
        return Group(*parts)

    def _topologies(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        current = {TrialId.parse(_trial_of(key)).topology for key in self._progress.running}
        for name, note in self._progress.topologies.items():
            mark = "▶" if name in current else " "
            table.add_row(mark, name, note["status"], note.get("reason", ""))
        return table


def _told(note: dict[str, Any]) -> str:
    """What a trial came to, in a line."""
    return " ".join(part for part in (note.get("figure", ""), note["verdict"], note["reason"]) if part)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S" if seconds >= 3600 else "%M:%S", time.gmtime(seconds))
