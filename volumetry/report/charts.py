"""The charts of a report as Vega-Lite specifications, which the page draws where JavaScript runs.

Colours are CSS variables of the page, so that a chart follows its light, dark and printed looks by itself. Every chart
stands beside a table with the same figures.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from volumetry.report import words
from volumetry.report.model import Curve, Deviation, Estimate, Panel, Report, Series, Step

Spec = dict[str, Any]

TEXT = "var(--text)"
MUTED = "var(--muted)"
LOSS = "var(--loss)"
GAIN = "var(--gain)"
COLOURS = 8  # --t1 to --t8 of the page
ROW = 44  # pixels of a topology's row
LIMIT_IN_SIGHT = 1.4  # times the furthest figure; a limit beyond would squeeze the bars


@dataclass(frozen=True)
class Chart:
    """A chart: its place on the page, what it shows (for those who cannot see it), its specification."""

    id: str
    label: str
    spec: Spec


def charts(report: Report) -> list[Chart]:
    """Every chart of the page."""
    drawn: list[Chart | None] = []
    for place, panel in enumerate(report.panels):
        drawn += [_ladder(report, panel, place), _latency(report, panel, place), _curves(report, panel, place)]
        drawn += [_cpu(report, panel, place)]
    drawn += [*_series(report), _drift(report)]
    return [chart for chart in drawn if chart]


def topologies(report: Report) -> list[str]:
    """Every topology that was planned, the ladder's in its order first."""
    return list(dict.fromkeys([*report.ladder, *(step.topology for panel in report.panels for step in panel.steps)]))


def colour(report: Report, topology: str) -> str:
    """The colour of a topology, the same in every chart."""
    return f"var(--t{topologies(report).index(topology) % COLOURS + 1})"


# --- parts ------------------------------------------------------------------------------------------------------


def _rows(values: Iterable[Spec]) -> Spec:
    return {"values": list(values)}


def _base(height: int, **fields: Any) -> Spec:
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, **fields}


def _by_topology(report: Report, names: Sequence[str]) -> Spec:
    """A colour channel."""
    scale = {"domain": list(names), "range": [colour(report, name) for name in names]}
    return {"field": "topology", "type": "nominal", "legend": None, "scale": scale}


def _topology_axis(steps: Sequence[Step]) -> Spec:
    axis = {"title": None, "labelLimit": 180, "ticks": False, "domain": False, "labelPadding": 8}
    domain = [step.topology for step in steps]
    return {"field": "topology", "type": "nominal", "scale": {"domain": domain}, "axis": axis}


def _axis(title: str | None, highest: float, **fields: Any) -> Spec:
    """An axis of numbers that a person can read: 1,500, not 1.5e+3."""
    return {"title": title, "format": ",.0f" if highest >= 10 else ",.2~f", "tickCount": 5, **fields}


def _choice(field: str, **values: Any) -> Spec:
    """A channel without a legend: value of the field -> value of the channel."""
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": field, "type": "nominal", "legend": None, "scale": scale}


def _opacity(field: str, **values: float) -> Spec:
    # Vega-Lite warns of an opacity without an order.
    return _choice(field, **values) | {"type": "ordinal"}


def _tooltip(*fields: str | tuple[str, str]) -> list[Spec]:
    pairs = [(field, field) if isinstance(field, str) else field for field in fields]
    return [{"field": field, "type": "nominal", "title": title} for field, title in pairs]


# --- the ladder -------------------------------------------------------------------------------------------------

_WAYS = {"lost": LOSS, "gained": GAIN, "level": MUTED}


def _ladder(report: Report, panel: Panel, place: int) -> Chart:
    """Bars of medians; what each step lost or gained; trials as points; intervals as lines; limits as ticks."""
    furthest = max([*_reaches(panel), 1.0])
    limits = [limit for limit in panel.ceilings if limit.iops <= LIMIT_IN_SIGHT * furthest]
    end = 1.02 * max([furthest, *(limit.iops for limit in limits)])
    # Vega makes room for labels beyond the axis: they must begin near its end, whatever the width.
    median_px = 18 + 8 * max((len(label["text"]) for label in _labels(panel)), default=0)
    x = {
        "type": "quantitative",
        "scale": {"domain": [0, end], "nice": False},
        "axis": _axis(f"median {panel.unit}", end),
    }
    layers = [
        {"name": "rungs"}
        | _layer(
            _bars(panel),
            {"type": "bar", "height": {"band": 0.62}, "cornerRadiusEnd": 3},
            x={**x, "field": "iops"},
            color=_by_topology(report, [step.topology for step in panel.steps]),
            tooltip=_tooltip(
                "topology",
                ("text", f"median {panel.unit}"),
                ("interval", "95 % interval"),
                ("change", "against the step before"),
                ("first", "against the first"),
                ("trials", "valid trials"),
            ),
        ),
        _layer(
            _moves(panel),
            {"type": "bar", "height": {"band": 0.62}, "opacity": 0.26},
            x={**x, "field": "from"},
            x2={"field": "to"},
            color=_choice("way", **_WAYS),
        ),
        _layer(
            ({"topology": limit.topology, "limit": limit.iops, "cause": limit.cause} for limit in limits),
            {"type": "tick", "color": MUTED, "thickness": 1.5, "bandSize": ROW},
            x={**x, "field": "limit"},
            tooltip=_tooltip(("limit", "limit foretold"), "cause"),
        ),
        _layer(
            ({"topology": limit.topology, "limit": limit.iops, "text": limit.cause} for limit in limits[:1]),
            {"type": "text", "align": "left", "dx": 5, "dy": -15, "fontSize": 10.5, "color": MUTED},
            x={**x, "field": "limit"},
            text={"field": "text"},
        ),
        _layer(
            _points(panel),
            {"type": "point", "size": 24, "strokeWidth": 1.1, "stroke": TEXT, "fill": "var(--surface)", "opacity": 0.9},
            x={**x, "field": "iops"},
            shape=_choice("kind", **{"valid": "circle", "left out": "cross"}),
            tooltip=_tooltip("topology", "repetition", ("text", panel.unit), "verdict"),
        ),
        _layer(
            _intervals(panel),
            {"type": "rule", "strokeWidth": 2, "color": TEXT},
            x={**x, "field": "low"},
            x2={"field": "high"},
        ),
        *(
            _layer(
                (label for label in _labels(panel) if label[field]),
                {"type": "text", "align": "left", "dx": dx, "fontSize": 13, "fontWeight": 600},
                x={**x, "field": "end"},
                text={"field": field},
                color=_choice("way", **_WAYS) if field == "change" else {"value": TEXT},
            )
            for field, dx in (("text", 10), ("change", median_px))
        ),
    ]
    spec = _base(
        ROW * len(panel.steps),
        encoding={"y": _topology_axis(panel.steps)},
        layer=[layer for layer in layers if layer["data"]["values"]],
        padding={"left": 5, "top": 5, "bottom": 5, "right": 22},
        resolve={"scale": {"color": "independent"}},
    )
    return Chart(f"ladder-{place}", f"{panel.workload}, {panel.tuning}: {words.finding(panel)}", spec)


def _layer(values: Iterable[Spec], mark: Spec, **encoding: Spec | list[Spec]) -> Spec:
    return {"data": _rows(values), "mark": mark, "encoding": encoding}


def _reaches(panel: Panel) -> list[float]:
    """Everything that the chart must have room for."""
    medians = [step.iops.median for step in panel.steps if step.iops]
    return [*medians, *(trial.iops for step in panel.steps for trial in step.trials if trial.iops)]


def _bars(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        if step.iops:
            yield {
                "topology": step.topology,
                "iops": step.iops.median,
                "text": words.count(step.iops.median),
                "interval": words.interval(step.iops) or "none: fewer than six trials",
                "change": words.change(step.against_previous),
                "first": words.change(step.against_first),
                "trials": f"{step.trials_valid} of {len(step.trials)}",
            }


def _moves(panel: Panel) -> Iterator[Spec]:
    """From the rung before to this one."""
    for topology, before, after in _pairs(panel):
        way = "lost" if after.median < before.median else "gained"
        yield {"topology": topology, "from": before.median, "to": after.median, "way": way}


def _pairs(panel: Panel) -> Iterator[tuple[str, Estimate, Estimate]]:
    """Each rung that is compared with the one right before it, and the figures of both."""
    for before, step in pairwise(panel.rungs):
        if step.against_previous and before.iops and step.iops:
            yield step.topology, before.iops, step.iops


def _points(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        for trial in step.trials:
            if trial.iops is not None:
                yield {
                    "topology": step.topology,
                    "iops": trial.iops,
                    "text": words.count(trial.iops),
                    "repetition": trial.repetition,
                    "verdict": trial.verdict,
                    "kind": "valid" if trial.verdict == "valid" else "left out",
                }


def _intervals(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        if step.iops and step.iops.low is not None:
            yield {"topology": step.topology, "low": step.iops.low, "high": step.iops.high}


def _labels(panel: Panel) -> Iterator[Spec]:
    """Beyond everything else in the row: the median, and what the step changed."""
    before = {topology: estimate for topology, estimate, _ in _pairs(panel)}
    for step in panel.steps:
        ends = [estimate.median for estimate in (step.iops, before.get(step.topology)) if estimate]
        ends += [trial.iops for trial in step.trials if trial.iops]
        if ends:
            yield {
                "topology": step.topology,
                "end": max(ends),
                "text": words.count(step.iops.median) if step.iops else words.left_out(step),
                "change": words.change(step.against_previous) if step.against_previous else "",
                "way": words.way(step.against_previous),
            }


# --- latency ----------------------------------------------------------------------------------------------------

_PERCENTILES = {"p50": "circle", "p99": "diamond", "p99.9": "triangle-right"}
_LATENCY: Spec = {
    "field": "us",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False, "padding": 26},
    "axis": {
        "title": "completion latency",
        "values": [digit * 10**power for power in range(8) for digit in (1, 2, 5)],
        "labelExpr": "datum.value >= 1e6 ? datum.value / 1e6 + ' s' : datum.value >= 1e3 ? datum.value / 1e3 + ' ms' "
        ": datum.value + ' µs'",
        "labelOverlap": True,
    },
}


def _latency(report: Report, panel: Panel, place: int) -> Chart | None:
    """p50, p99 and p99.9 of each topology on one line."""
    steps = [step for step in panel.steps if "all" in step.latency]
    if not steps:
        return None
    values = [
        {"topology": step.topology, "percentile": name, "us": us, "text": words.latency(us)}
        for step in steps
        for name, us in zip(_PERCENTILES, _percentiles(step), strict=True)
    ]
    shapes = _choice("percentile", **_PERCENTILES) | {
        "legend": {"title": None, "orient": "top", "symbolFillColor": TEXT, "symbolStrokeWidth": 0}
    }
    spec = _base(
        ROW * len(steps),
        data=_rows(values),
        encoding={
            "y": _topology_axis(steps),
            "x": _LATENCY,
            "color": _by_topology(report, [step.topology for step in steps]),
        },
        layer=[
            {"mark": {"type": "line", "strokeWidth": 3, "opacity": 0.35}},
            {
                "mark": {"type": "point", "filled": True, "size": 95, "opacity": 1},
                "encoding": {"shape": shapes, "tooltip": _tooltip("topology", "percentile", ("text", "latency"))},
            },
            # A p99 close to its p50 would be written over it.
            _texts("datum.percentile != 'p99'", -13),
            _texts("datum.percentile == 'p99'", 15),
        ],
    )
    label = f"{panel.workload}, {panel.tuning}: p50, p99 and p99.9 of completion latency by topology"
    return Chart(f"latency-{place}", label, spec)


def _texts(which: str, dy: int) -> Spec:
    return {
        "transform": [{"filter": which}],
        "mark": {"type": "text", "dy": dy, "fontSize": 11},
        "encoding": {"text": {"field": "text"}, "color": {"value": MUTED}},
    }


def _percentiles(step: Step) -> tuple[float, float, float]:
    found = step.latency["all"]
    return found.p50_us, found.p99_us, found.p999_us


_NINES = {
    1: "0",
    2: "50 %",
    10: "90 %",
    100: "99 %",
    1000: "99.9 %",
    10**4: "99.99 %",
    10**5: "99.999 %",
    10**6: "99.9999 %",
}
_SHARES = {
    "field": "above",
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {
        "title": "share of operations that were at least as fast",
        "values": list(_NINES),
        "labelExpr": " : ".join(f"datum.value == {value} ? '{text}'" for value, text in _NINES.items()) + " : ''",
    },
}


def _curves(report: Report, panel: Panel, place: int) -> Chart | None:
    """The whole distribution, its tail spread out: each further nine takes the same room."""
    curves = [curve for curve in report.curves if (curve.workload, curve.tuning) == (panel.workload, panel.tuning)]
    if not curves:
        return None
    us = "datum.us >= 1000 ? format(datum.us / 1000, '.3~r') + ' ms' : format(datum.us, '.3~r') + ' µs'"
    spec = _base(
        ROW * max(len(panel.steps), 4),
        data=_rows(_curve(curve) for curve in curves),
        transform=[
            {"flatten": ["above", "us"]},
            {"calculate": "format(100 - 100 / datum.above, '.6~r') + ' %'", "as": "share"},
            {"calculate": us, "as": "text"},
        ],
        encoding={
            "x": _SHARES,
            "y": {**_LATENCY, "scale": {"type": "log", "nice": False}},
            "color": _by_topology(report, [step.topology for step in panel.steps]),
        },
        layer=[
            {"mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-before"}},
            _hover("topology", ("share", "operations"), ("text", "took at most")),
        ],
    )
    label = f"{panel.workload}, {panel.tuning}: latency against the share of operations, by topology"
    return Chart(f"curves-{place}", label, spec)


def _curve(curve: Curve) -> Spec:
    """1 / (1 - share) on a log scale spreads the nines; the last bucket stands half an operation before the end."""
    above = [round(1 / max(1 - share, 0.5 / curve.operations), 3) for share, _ in curve.points]
    return {"topology": curve.topology, "above": above, "us": [us for _, us in curve.points]}


def _hover(*fields: str | tuple[str, str], **encoding: Spec) -> Spec:
    """Points that show when pointed at: a line alone would tell of its first point wherever it is touched."""
    mark = {"type": "point", "filled": True, "size": 55, "opacity": 0, "aria": False}
    return {"name": "hover", "mark": mark, "encoding": {"tooltip": _tooltip(*fields), **encoding}}


# --- CPU, time, drift -------------------------------------------------------------------------------------------


def _cpu(report: Report, panel: Panel, place: int) -> Chart | None:
    """CPU of the hosts that made the load, and of those that only hold a copy."""
    kinds = ("load", "copy")
    values = [
        {"topology": step.topology, "hosts": kind, "pct": estimate.median, "text": words.share(estimate.median)}
        for step in panel.steps
        for kind, estimate in zip(kinds, (step.cpu_pct, step.peer_cpu_pct), strict=True)
        if estimate
    ]
    if not values:
        return None
    steps = [step for step in panel.steps if step.cpu_pct]
    end = 1.2 * max(estimate.median for step in steps for estimate in (step.cpu_pct, step.peer_cpu_pct) if estimate)
    x = {"field": "pct", "type": "quantitative", "scale": {"domain": [0, end], "nice": False}}
    spec = _base(
        ROW * len(steps),
        data=_rows(values),
        encoding={
            "y": _topology_axis(steps),
            "yOffset": {"field": "hosts", "scale": {"domain": list(kinds)}},
            "x": {**x, "axis": _axis("CPU of a host, %", end)},
        },
        layer=[
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {
                    "color": _by_topology(report, [step.topology for step in steps]),
                    "opacity": _opacity("hosts", load=1, copy=0.45),
                    "tooltip": _tooltip("topology", "hosts", ("text", "CPU")),
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 11, "color": MUTED},
                "encoding": {"text": {"field": "text"}},
            },
        ],
    )
    return Chart(f"cpu-{place}", f"{panel.workload}, {panel.tuning}: CPU of the hosts by topology", spec)


def series_id(series: Series) -> str:
    """The chart that a series is drawn in: one for each cell."""
    return f"series-{series.workload}-{series.tuning}-{series.topology}"


def _series(report: Report) -> Iterator[Chart]:
    """Small multiples: every trial of a cell as a line; the charts of one load share their scales."""
    highest: dict[str, float] = {}
    groups: dict[str, list[Series]] = {}
    for series in report.series:
        top = max(iops for _, iops in series.points)
        highest[series.workload] = max(highest.get(series.workload, 0.0), top)
        groups.setdefault(series_id(series), []).append(series)
    for name, group in groups.items():
        yield _multiple(report, name, group, 1.05 * highest[group[0].workload])


_SECONDS = "datum.label + ' s'"


def _multiple(report: Report, name: str, group: Sequence[Series], end: float) -> Chart:
    first = group[0]
    y = {"field": "iops", "type": "quantitative", "scale": {"domain": [0, end], "nice": False}}
    spec = _base(
        110,
        data=_rows(_line(series) for series in group),
        transform=[{"flatten": ["s", "iops"]}, {"calculate": "format(datum.iops, ',')", "as": "text"}],
        encoding={
            "x": {
                "field": "s",
                "type": "quantitative",
                "scale": {"nice": False},
                "axis": {"title": None, "tickCount": 4, "tickMinStep": 1, "format": ",.0f", "labelExpr": _SECONDS},
            },
            "y": {**y, "axis": _axis(None, end, tickCount=3)},
            "detail": {"field": "repetition"},
            "color": _choice("kind", **{"valid": colour(report, first.topology), "left out": LOSS}),
        },
        layer=[
            {
                "mark": {"type": "line", "strokeWidth": 1.4},
                "encoding": {
                    "strokeDash": _choice("kind", **{"valid": [1, 0], "left out": [4, 3]}),
                    "opacity": _opacity("kind", **{"valid": 0.75, "left out": 1}),
                },
            },
            _hover("repetition", "verdict", ("s", "second"), ("text", "operations a second")),
        ],
    )
    label = f"{first.workload}, {first.tuning}, {first.topology}: operations a second over time, trial by trial"
    return Chart(name, label, spec)


def _line(series: Series) -> Spec:
    return {
        "repetition": series.repetition,
        "verdict": series.verdict,
        "kind": "valid" if series.verdict == "valid" else "left out",
        "s": [second for second, _ in series.points],
        "iops": [round(iops) if iops >= 100 else iops for _, iops in series.points],
    }


def _drift(report: Report) -> Chart | None:
    """How far each trial lies from its cell's median, by the time at which it ran."""
    if not report.deviations:
        return None
    unit, per_hour = ("hours", 1.0) if report.span_hours >= 2 else ("minutes", 60.0)
    x = {"field": "since", "type": "quantitative", "scale": {"nice": False, "padding": 6}}
    y = {"field": "pct", "type": "quantitative"}
    spec = _base(
        180,
        data=_rows(_deviation(one, per_hour) for one in report.deviations),
        encoding={
            "x": {**x, "axis": {"title": f"{unit} since the first trial", "tickCount": 8}},
            "y": {**y, "axis": {"title": "from the cell's median, %", "tickCount": 5}},
        },
        layer=[
            {"mark": {"type": "rule", "color": MUTED}, "encoding": {"y": {"datum": 0}, "x": None}},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.8},
                "encoding": {
                    "color": _by_topology(report, topologies(report)),
                    "tooltip": _tooltip("topology", "workload", "tuning", "repetition", ("text", "from the median")),
                },
            },
        ],
    )
    return Chart("drift", "Each valid trial against the median of its cell, by when it began", spec)


def _deviation(one: Deviation, per_hour: float) -> Spec:
    return {
        "topology": one.topology,
        "workload": one.workload,
        "tuning": one.tuning,
        "repetition": one.repetition,
        "since": round(one.hours * per_hour, 4),
        "pct": one.deviation_pct,
        "text": f"{one.deviation_pct:+.2f} %",
    }
