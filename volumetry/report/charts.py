"""The charts of a report as Vega-Lite specifications, which the page draws where JavaScript runs.

Every chart stands beside a table with the same figures.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from volumetry.report import words
from volumetry.report.failure_charts import timelines
from volumetry.report.model import Curve, Deviation, Estimate, Panel, Path, Report, Series, Step
from volumetry.report.parts import (
    GAIN,
    LOSS,
    MUTED,
    ROW,
    TEXT,
    Chart,
    Spec,
    axis,
    base,
    by_topology,
    choice,
    colour,
    hover,
    layer,
    nominal_axis,
    opacity,
    rows,
    tooltip,
    topologies,
    topology_axis,
)

LIMIT_IN_SIGHT = 1.4  # times the furthest figure; a limit beyond would squeeze the bars


def charts(report: Report) -> list[Chart]:
    """Every chart of the page."""
    drawn: list[Chart | None] = []
    for place, panel in enumerate(report.panels):
        drawn += [_ladder(report, panel, place)] if is_ladder(report, panel) else []
        drawn += [_latency(report, panel, place), _curves(report, panel, place), _cpu(report, panel, place)]
    drawn += [*timelines(report), _paths(report), *_series(report), _drift(report)]
    return [chart for chart in drawn if chart]


def is_ladder(report: Report, panel: Panel) -> bool:
    """Whether a panel is shown as a ladder: a sweep of one topology's tunings is shown among the tunings."""
    return panel.tuning == report.base_tuning or len(panel.steps) > 1


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
        "axis": axis(f"median {panel.unit}", end),
    }
    layers = [
        {"name": "rungs"}
        | layer(
            _bars(panel),
            {"type": "bar", "height": {"band": 0.62}, "cornerRadiusEnd": 3},
            x={**x, "field": "rate"},
            color=by_topology(report, [step.topology for step in panel.steps]),
            tooltip=tooltip(
                "topology",
                ("text", f"median {panel.unit}"),
                ("interval", "95 % interval"),
                ("change", "against the step before"),
                ("first", "against the first"),
                ("trials", "valid trials"),
            ),
        ),
        layer(
            _moves(panel),
            {"type": "bar", "height": {"band": 0.62}, "opacity": 0.26},
            x={**x, "field": "from"},
            x2={"field": "to"},
            color=choice("way", **_WAYS),
        ),
        layer(
            ({"topology": limit.topology, "limit": limit.iops, "cause": limit.cause} for limit in limits),
            {"type": "tick", "color": MUTED, "thickness": 1.5, "bandSize": ROW},
            x={**x, "field": "limit"},
            tooltip=tooltip(("limit", "limit foretold"), "cause"),
        ),
        layer(
            ({"topology": limit.topology, "limit": limit.iops, "text": limit.cause} for limit in limits[:1]),
            {"type": "text", "align": "left", "dx": 5, "dy": -15, "fontSize": 10.5, "color": MUTED},
            x={**x, "field": "limit"},
            text={"field": "text"},
        ),
        layer(
            _points(panel),
            {"type": "point", "size": 24, "strokeWidth": 1.1, "stroke": TEXT, "fill": "var(--surface)", "opacity": 0.9},
            x={**x, "field": "rate"},
            shape=choice("kind", **{"valid": "circle", "left out": "cross"}),
            tooltip=tooltip("topology", "repetition", ("text", panel.unit), "verdict"),
        ),
        layer(
            _intervals(panel),
            {"type": "rule", "strokeWidth": 2, "color": TEXT},
            x={**x, "field": "low"},
            x2={"field": "high"},
        ),
        *(
            layer(
                (label for label in _labels(panel) if label[field]),
                {"type": "text", "align": "left", "dx": dx, "fontSize": 13, "fontWeight": 600},
                x={**x, "field": "end"},
                text={"field": field},
                color=choice("way", **_WAYS) if field == "change" else {"value": TEXT},
            )
            for field, dx in (("text", 10), ("change", median_px))
        ),
    ]
    spec = base(
        ROW * len(panel.steps),
        encoding={"y": topology_axis(panel.steps)},
        layer=[one for one in layers if one["data"]["values"]],
        padding={"left": 5, "top": 5, "bottom": 5, "right": 22},
        resolve={"scale": {"color": "independent"}},
    )
    return Chart(f"ladder-{place}", f"{panel.workload}, {panel.tuning}: {words.finding(panel)}", spec)


def _reaches(panel: Panel) -> list[float]:
    """Everything that the chart must have room for."""
    medians = [step.rate.median for step in panel.steps if step.rate]
    return [*medians, *(trial.rate for step in panel.steps for trial in step.trials if trial.rate)]


def _bars(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        if step.rate:
            yield {
                "topology": step.topology,
                "rate": step.rate.median,
                "text": words.count(step.rate.median),
                "interval": words.interval(step.rate) or "none: fewer than six trials",
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
        if step.against_previous and before.rate and step.rate:
            yield step.topology, before.rate, step.rate


def _points(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        for trial in step.trials:
            if trial.rate is not None:
                yield {
                    "topology": step.topology,
                    "rate": trial.rate,
                    "text": words.count(trial.rate),
                    "repetition": trial.repetition,
                    "verdict": trial.verdict,
                    "kind": "valid" if trial.verdict == "valid" else "left out",
                }


def _intervals(panel: Panel) -> Iterator[Spec]:
    for step in panel.steps:
        if step.rate and step.rate.low is not None:
            yield {"topology": step.topology, "low": step.rate.low, "high": step.rate.high}


def _labels(panel: Panel) -> Iterator[Spec]:
    """Beyond everything else in the row: the median, and what the step changed."""
    before = {topology: estimate for topology, estimate, _ in _pairs(panel)}
    for step in panel.steps:
        ends = [estimate.median for estimate in (step.rate, before.get(step.topology)) if estimate]
        ends += [trial.rate for trial in step.trials if trial.rate]
        if ends:
            yield {
                "topology": step.topology,
                "end": max(ends),
                "text": words.count(step.rate.median) if step.rate else words.left_out(step),
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
    shapes = choice("percentile", **_PERCENTILES) | {
        "legend": {"title": None, "orient": "top", "symbolFillColor": TEXT, "symbolStrokeWidth": 0}
    }
    spec = base(
        ROW * len(steps),
        data=rows(values),
        encoding={
            "y": topology_axis(steps),
            "x": _LATENCY,
            "color": by_topology(report, [step.topology for step in steps]),
        },
        layer=[
            {"mark": {"type": "line", "strokeWidth": 3, "opacity": 0.35}},
            {
                "mark": {"type": "point", "filled": True, "size": 95, "opacity": 1},
                "encoding": {"shape": shapes, "tooltip": tooltip("topology", "percentile", ("text", "latency"))},
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
    spec = base(
        ROW * max(len(panel.steps), 4),
        data=rows(_curve(curve) for curve in curves),
        transform=[
            {"flatten": ["above", "us"]},
            {"calculate": "format(100 - 100 / datum.above, '.6~r') + ' %'", "as": "share"},
            {"calculate": us, "as": "text"},
        ],
        encoding={
            "x": _SHARES,
            "y": {**_LATENCY, "scale": {"type": "log", "nice": False}},
            "color": by_topology(report, [step.topology for step in panel.steps]),
        },
        layer=[
            {"mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-before"}},
            hover("topology", ("share", "operations"), ("text", "took at most")),
        ],
    )
    label = f"{panel.workload}, {panel.tuning}: latency against the share of operations, by topology"
    return Chart(f"curves-{place}", label, spec)


def _curve(curve: Curve) -> Spec:
    """1 / (1 - share) on a log scale spreads the nines; the last bucket stands half an operation before the end."""
    above = [round(1 / max(1 - share, 0.5 / curve.operations), 3) for share, _ in curve.points]
    return {"topology": curve.topology, "above": above, "us": [us for _, us in curve.points]}


# --- the path of a write ----------------------------------------------------------------------------------------

_PARTS = {"round trip": MUTED, "write without the peer": "var(--t2)", "mirrored write": "var(--t1)"}


def path_name(report: Report, path: Path) -> str:
    """What a path is called: its topology, and what else tells it from the others."""
    one_load = len({one.workload for one in report.paths}) == 1
    own = [path.topology, "" if one_load else path.workload, path.tuning if path.tuning != report.base_tuning else ""]
    return ", ".join(filter(None, own))


def _paths(report: Report) -> Chart | None:
    """What is foretold of a mirrored write, part by part, above what it takes."""
    paths = [path for path in report.paths if path.mirrored_us is not None]
    values = [
        {"path": path_name(report, path), "bar": bar, "part": part, "us": us, "text": words.latency(us)}
        for path in paths
        for bar, part, us in (
            ("foretold", "write without the peer", path.local_us),
            ("foretold", "round trip", path.rtt_us),
            ("measured", "mirrored write", path.mirrored_us),
        )
        if us is not None
    ]
    if not values:
        return None
    end = 1.2 * max(us for path in paths for us in (path.mirrored_us, path.foretold_us) if us is not None)
    order = list(_PARTS)
    spec = _part_bars(values, [path_name(report, path) for path in paths], end)
    spec["encoding"]["order"] = {"field": "place", "type": "quantitative"}
    for value in values:
        value["place"] = -order.index(str(value["part"]))
    return Chart("path", "A mirrored write: the round trip and a write without the peer together, against it", spec)


def _part_bars(values: list[Spec], names: Sequence[str], end: float) -> Spec:
    legend = {"title": None, "orient": "top", "symbolType": "square"}
    return base(
        2 * 30 * len(names),
        data=rows(values),
        encoding={
            "y": nominal_axis("path", names),
            "yOffset": {"field": "bar", "scale": {"domain": ["foretold", "measured"], "paddingOuter": 0.15}},
            "x": {
                "field": "us",
                "type": "quantitative",
                "stack": "zero",
                "scale": {"domain": [0, end], "nice": False},
                "axis": axis("median completion latency, µs", end),
            },
        },
        layer=[
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {
                    "color": choice("part", **_PARTS) | {"legend": legend},
                    "tooltip": tooltip("path", "part", ("text", "latency")),
                },
            },
            {
                "transform": [{"aggregate": [{"op": "sum", "field": "us", "as": "us"}], "groupby": ["path", "bar"]}],
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11.5, "color": MUTED},
                "encoding": {
                    "x": {"field": "us", "type": "quantitative", "stack": None},
                    "text": {"field": "bar"},
                    "color": {"value": MUTED},
                },
            },
        ],
    )


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
    spec = base(
        ROW * len(steps),
        data=rows(values),
        encoding={
            "y": topology_axis(steps),
            "yOffset": {"field": "hosts", "scale": {"domain": list(kinds)}},
            "x": {**x, "axis": axis("CPU of a host, %", end)},
        },
        layer=[
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {
                    "color": by_topology(report, [step.topology for step in steps]),
                    "opacity": opacity("hosts", load=1, copy=0.45),
                    "tooltip": tooltip("topology", "hosts", ("text", "CPU")),
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
        top = max(rate for _, rate in series.points)
        highest[series.workload] = max(highest.get(series.workload, 0.0), top)
        groups.setdefault(series_id(series), []).append(series)
    for name, group in groups.items():
        yield _multiple(report, name, group, 1.05 * highest[group[0].workload])


_SECONDS = "datum.label + ' s'"


def _multiple(report: Report, name: str, group: Sequence[Series], end: float) -> Chart:
    first = group[0]
    unit = next((panel.unit for panel in report.panels if panel.workload == first.workload), "")
    y = {"field": "rate", "type": "quantitative", "scale": {"domain": [0, end], "nice": False}}
    spec = base(
        110,
        data=rows(_line(series) for series in group),
        transform=[{"flatten": ["s", "rate"]}, {"calculate": "format(datum.rate, ',')", "as": "text"}],
        encoding={
            "x": {
                "field": "s",
                "type": "quantitative",
                "scale": {"nice": False},
                "axis": {"title": None, "tickCount": 4, "tickMinStep": 1, "format": ",.0f", "labelExpr": _SECONDS},
            },
            "y": {**y, "axis": axis(None, end, tickCount=3)},
            "detail": {"field": "repetition"},
            "color": choice("kind", **{"valid": colour(report, first.topology), "left out": LOSS}),
        },
        layer=[
            {
                "mark": {"type": "line", "strokeWidth": 1.4},
                "encoding": {
                    "strokeDash": choice("kind", **{"valid": [1, 0], "left out": [4, 3]}),
                    "opacity": opacity("kind", **{"valid": 0.75, "left out": 1}),
                },
            },
            hover("repetition", "verdict", ("s", "second"), ("text", unit)),
        ],
    )
    label = f"{first.workload}, {first.tuning}, {first.topology}: {unit} over time, trial by trial"
    return Chart(name, label, spec)


def _line(series: Series) -> Spec:
    return {
        "repetition": series.repetition,
        "verdict": series.verdict,
        "kind": "valid" if series.verdict == "valid" else "left out",
        "s": [second for second, _ in series.points],
        "rate": [round(rate) if rate >= 100 else rate for _, rate in series.points],
    }


def _drift(report: Report) -> Chart | None:
    """How far each trial lies from its cell's median, by the time at which it ran."""
    if not report.deviations:
        return None
    unit, per_hour = ("hours", 1.0) if report.span_hours >= 2 else ("minutes", 60.0)
    x = {"field": "since", "type": "quantitative", "scale": {"nice": False, "padding": 6}}
    y = {"field": "pct", "type": "quantitative"}
    spec = base(
        180,
        data=rows(_deviation(one, per_hour) for one in report.deviations),
        encoding={
            "x": {**x, "axis": {"title": f"{unit} since the first trial", "tickCount": 8}},
            "y": {**y, "axis": {"title": "from the cell's median, %", "tickCount": 5}},
        },
        layer=[
            {"mark": {"type": "rule", "color": MUTED}, "encoding": {"y": {"datum": 0}, "x": None}},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.8},
                "encoding": {
                    "color": by_topology(report, topologies(report)),
                    "tooltip": tooltip("topology", "workload", "tuning", "repetition", ("text", "from the median")),
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
