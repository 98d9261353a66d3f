"""What charts are made of: Vega-Lite specifications in the page's colours, which are CSS variables.

So a chart follows the page's light, dark and printed looks by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from volumetry.report.model import Report, Step

Spec = dict[str, Any]

TEXT = "var(--text)"
MUTED = "var(--muted)"
LOSS = "var(--loss)"
GAIN = "var(--gain)"
WARN = "var(--warn)"
COLOURS = 8  # --t1 to --t8 of the page
ROW = 44  # pixels of a topology's row


@dataclass(frozen=True)
class Chart:
    """A chart: its place on the page, what it shows (for those who cannot see it), its specification."""

    id: str
    label: str
    spec: Spec


def topologies(report: Report) -> list[str]:
    """Every topology that is named, the ladder's in its order first."""
    measured = [step.topology for panel in report.panels for step in panel.steps]
    known = [failure.topology for failure in report.failures] + [one.topology for one in report.provenance]
    beside = [
        name for one in (report.published.ratios if report.published else ()) for name in (one.base, one.topology)
    ]
    return list(dict.fromkeys([*report.ladder, *measured, *known, *beside]))


def colour(report: Report, topology: str) -> str:
    """The colour of a topology, the same in every chart."""
    return f"var(--t{topologies(report).index(topology) % COLOURS + 1})"


def rows(values: Iterable[Spec]) -> Spec:
    return {"values": list(values)}


def base(height: int, **fields: Any) -> Spec:
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, **fields}


def by_topology(report: Report, names: Sequence[str]) -> Spec:
    """A colour channel."""
    scale = {"domain": list(names), "range": [colour(report, name) for name in names]}
    return {"field": "topology", "type": "nominal", "legend": None, "scale": scale}


def topology_axis(steps: Sequence[Step]) -> Spec:
    return nominal_axis("topology", [step.topology for step in steps])


def nominal_axis(field: str, domain: Sequence[str]) -> Spec:
    """A channel of names, in this order."""
    axis = {"title": None, "labelLimit": 180, "ticks": False, "domain": False, "labelPadding": 8}
    return {"field": field, "type": "nominal", "scale": {"domain": list(domain)}, "axis": axis}


def axis(title: str | None, highest: float, **fields: Any) -> Spec:
    """An axis of numbers that a person can read: 1,500, not 1.5e+3."""
    return {"title": title, "format": ",.0f" if highest >= 10 else ",.2~f", "tickCount": 5, **fields}


def choice(field: str, **values: Any) -> Spec:
    """A channel without a legend: value of the field -> value of the channel."""
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": field, "type": "nominal", "legend": None, "scale": scale}


def opacity(field: str, **values: float) -> Spec:
    # Vega-Lite warns of an opacity without an order.
    return choice(field, **values) | {"type": "ordinal"}


def tooltip(*fields: str | tuple[str, str]) -> list[Spec]:
    pairs = [(field, field) if isinstance(field, str) else field for field in fields]
    return [{"field": field, "type": "nominal", "title": title} for field, title in pairs]


def layer(values: Iterable[Spec], mark: Spec, **encoding: Spec | list[Spec]) -> Spec:
    return {"data": rows(values), "mark": mark, "encoding": encoding}


def hover(*fields: str | tuple[str, str], **encoding: Spec) -> Spec:
    """Points that show when pointed at: a line alone would tell of its first point wherever it is touched."""
    mark = {"type": "point", "filled": True, "size": 55, "opacity": 0, "aria": False}
    return {"name": "hover", "mark": mark, "encoding": {"tooltip": tooltip(*fields), **encoding}}
