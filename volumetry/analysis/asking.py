"""Asking ``queries/named`` about one execution, and putting its rows in the order of its plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from volumetry.plan import Plan
from volumetry.report.model import Cost, Estimate

Query = Callable[[str], Sequence[Mapping[str, Any]]]
"""Runs a statement and gives its rows by column name; values typed, or text as Athena returns them."""

NAMED = Path(__file__).resolve().parents[2] / "queries" / "named"

Row = TypeVar("Row")
Cell = tuple[str, str, str]  # workload, tuning, topology


def statement(name: str, **parameters: str) -> str:
    """The SQL of a named query, its parameters filled in."""
    text = (NAMED / f"{name}.sql").read_text(encoding="utf-8")
    for parameter, value in parameters.items():
        text = text.replace(f"${{{parameter}}}", value.replace("'", "''"))
    return text


@dataclass(frozen=True)
class Asked:
    """The queries about one execution."""

    query: Query
    parameters: Mapping[str, str]

    def rows(self, name: str, kind: type[Row], **parameters: str) -> list[Row]:
        """The rows of a named query, each a ``kind``; text becomes what the fields say."""
        adapter = TypeAdapter(kind)
        return [adapter.validate_python(row) for row in self.raw(name, **parameters)]

    def raw(self, name: str, **parameters: str) -> list[dict[str, Any]]:
        """The rows of a named query as they come."""
        return [dict(row) for row in self.query(statement(name, **self.parameters, **parameters))]


class OfCell(Protocol):
    """A row about a cell."""

    @property
    def workload(self) -> str: ...
    @property
    def tuning(self) -> str: ...
    @property
    def topology(self) -> str: ...


def cell_of(row: OfCell) -> Cell:
    return row.workload, row.tuning, row.topology


def order(plan: Plan, cell: Cell) -> tuple[int, int, int]:
    """The place of a cell: workloads and tunings as the plan has them, the ladder's topologies before all others."""
    workload, tuning, topology = cell
    return list(plan.workloads).index(workload), list(plan.tunings).index(tuning), topologies(plan).index(topology)


def topologies(plan: Plan) -> list[str]:
    """Every topology, the ladder's first."""
    return [*plan.ladder, *(name for name in plan.topologies if name not in plan.ladder)]


def only(values: Iterable[str | None]) -> str:
    """The one value that is meant, or all of them where there are several."""
    return ", ".join(sorted({value for value in values if value}))


@dataclass(frozen=True)
class Unit:
    """What a tool's rate is called, and how many of it one of the tables' (operations or bytes a second) is."""

    name: str
    scale: float = 1.0


_UNITS = {"fio": Unit("IOPS"), "pgbench": Unit("TPS"), "dbench": Unit("MB/s", 1e-6)}


def unit_of(plan: Plan, workload: str) -> Unit:
    """The unit in which the rate of a workload is told."""
    return _UNITS[plan.workloads[workload].tool]


@dataclass(frozen=True)
class StepRow:
    """A row of ``ladder``: one metric of one step."""

    workload: str
    tuning: str
    topology: str
    metric: str
    step: int
    median: float | None
    low: float | None
    high: float | None
    smallest: float | None
    largest: float | None
    of_previous: float | None
    of_previous_low: float | None
    of_previous_high: float | None
    of_previous_blocks: int | None
    of_first: float | None
    of_first_low: float | None
    of_first_high: float | None
    of_first_blocks: int | None

    def estimate(self, scale: float = 1.0) -> Estimate | None:
        """The median in a unit of which ``scale`` make one of the tables'."""
        if self.median is None or self.smallest is None or self.largest is None:
            return None
        low, high = (None if bound is None else scale * bound for bound in (self.low, self.high))
        return Estimate(scale * self.median, low, high, scale * self.smallest, scale * self.largest)

    @property
    def against_previous(self) -> Cost | None:
        return cost(self.of_previous, self.of_previous_low, self.of_previous_high, self.of_previous_blocks)

    @property
    def against_first(self) -> Cost | None:
        return cost(self.of_first, self.of_first_low, self.of_first_high, self.of_first_blocks)


def cost(ratio: float | None, low: float | None, high: float | None, blocks: int | None) -> Cost | None:
    """A ratio to a base as what is lost against it."""
    if ratio is None or blocks is None:
        return None

    def lost(share: float | None) -> float | None:
        return None if share is None else 100 * (1 - share)

    return Cost(100 * (1 - ratio), lost(high), lost(low), blocks)


def rates(asked: Asked, ladder: Iterable[str]) -> list[StepRow]:
    """What each step of a ladder reaches, and for each unit of the steps before it."""
    return [row for row in asked.rows("ladder", StepRow, ladder=",".join(ladder)) if row.metric == "rate"]
