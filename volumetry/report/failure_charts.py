"""A failure under load on one line of time: what the load reached, when the failure was, how the mirror stood."""

from collections.abc import Iterator
from itertools import zip_longest

from volumetry.report import words
from volumetry.report.model import Failure, Report, Span, State
from volumetry.report.parts import (
    GAIN,
    LOSS,
    MUTED,
    WARN,
    Chart,
    Spec,
    axis,
    base,
    choice,
    colour,
    hover,
    layer,
    rows,
    tooltip,
)

HEIGHT = 230
STRIP = 20  # pixels of the strip of states, above the load
HEAD = 56  # pixels kept free for it and for the names of the spans


def timeline_id(failure: Failure) -> str:
    """The chart of a trial under a failure."""
    return f"failure-{failure.workload}-{failure.tuning}-{failure.topology}-{failure.repetition}"


def timelines(report: Report) -> Iterator[Chart]:
    """One chart a trial that has a load to draw."""
    for failure in report.failures:
        if failure.seconds:
            yield _timeline(report, failure)


def _timeline(report: Report, failure: Failure) -> Chart:
    highest = max([1.0, *(rate for _, rate in failure.seconds)])
    # The load stays below the strip and the names.
    top = highest * HEIGHT / (HEIGHT - HEAD)
    x = {
        "type": "quantitative",
        "scale": {"domain": [0, failure.ends_s], "nice": False},
        "axis": {"title": "seconds of the load", "tickCount": 10, "grid": False},
    }
    y = {
        "field": "rate",
        "type": "quantitative",
        "scale": {"domain": [0, top], "nice": False},
        "axis": axis(failure.unit, highest, values=_ticks(highest)),
    }
    spans = list(_spans(failure))
    states = list(_states(failure))
    layers = [
        {"name": "spans"}
        | layer(
            spans,
            {"type": "rect", "opacity": 0.16},
            x={**x, "field": "from"},
            x2={"field": "to"},
            color=choice("kind", fault=LOSS, resync=WARN),
            tooltip=tooltip(("text", "what"), ("when", "seconds")),
        ),
        *(
            layer(
                (span for span in spans if span["kind"] == kind),
                {"type": "text", "align": "left", "baseline": "top", "dx": 4, "fontSize": 11.5, "fontWeight": 600},
                x={**x, "field": "from"},
                # On a narrow screen the one would be written over the other.
                y={"value": below},
                text={"field": "text"},
                color={"value": tint},
            )
            for kind, tint, below in (("fault", LOSS, STRIP + 6), ("resync", WARN, STRIP + 20))
        ),
        {"name": "states"}
        | layer(
            states,
            {"type": "rect", "opacity": 0.85, "cornerRadius": 3, "stroke": "var(--surface)", "strokeWidth": 1.5},
            x={**x, "field": "from"},
            x2={"field": "to"},
            y={"value": 0},
            y2={"value": STRIP},
            color=choice("kind", whole=GAIN, apart=LOSS, resync=WARN),
            tooltip=tooltip(("text", "state"), "host", ("when", "seconds")),
        ),
        layer(
            states,
            {
                "type": "text",
                "align": "left",
                "dx": 6,
                "fontSize": 11,
                "fontWeight": 600,
                "color": "var(--surface)",
                # A name wider than its state would be written over the next.
                "limit": {"expr": "max(1, scale('x', datum.to) - scale('x', datum.from) - 8)"},
                "ellipsis": " ",
            },
            x={**x, "field": "from"},
            y={"value": STRIP / 2},
            text={"field": "word"},
        ),
        layer(
            _before(failure),
            {"type": "rule", "strokeDash": [3, 3], "color": MUTED},
            y={**y, "field": "rate"},
        ),
        layer(
            _seconds(failure),
            {"type": "line", "strokeWidth": 2, "interpolate": "step-after", "color": colour(report, failure.topology)},
            x={**x, "field": "second"},
            y=y,
        ),
        {"data": rows(_seconds(failure))}
        | hover(
            ("when", "second"),
            ("text", failure.unit),
            x={**x, "field": "middle"},
            y=y,
            color={"value": colour(report, failure.topology)},
        ),
    ]
    spec = base(
        HEIGHT, layer=[one for one in layers if one["data"]["values"]], resolve={"scale": {"color": "independent"}}
    )
    return Chart(timeline_id(failure), f"{failure.topology}, {failure.event}: {words.failure(failure)}", spec)


def _ticks(highest: float) -> list[float]:
    """Three or four round figures, none above the load."""
    step = next(
        digit * 10.0**power for power in range(-2, 9) for digit in (1, 2, 5) if highest <= 4 * digit * 10.0**power
    )
    return [step * place for place in range(1 + int(highest / step))]


def _before(failure: Failure) -> Iterator[Spec]:
    if failure.before_rate is not None:
        yield {"rate": failure.before_rate}


def _seconds(failure: Failure) -> Iterator[Spec]:
    for second, rate in failure.seconds:
        yield {
            "second": second,
            "middle": second + 0.5,
            "rate": rate,
            "text": words.count(rate),
            "when": f"{second} to {second + 1} s",
        }
    # The last second lasts as long as the others.
    last, rate = failure.seconds[-1]
    yield {
        "second": last + 1,
        "middle": last + 0.5,
        "rate": rate,
        "text": words.count(rate),
        "when": f"{last} to {last + 1} s",
    }


def _spans(failure: Failure) -> Iterator[Spec]:
    for kind, text, span in (("fault", failure.event, failure.fault), ("resync", "resync", failure.resync)):
        if span is not None:
            yield {"kind": kind, "text": text} | _span(span)


def _span(span: Span) -> Spec:
    return {"from": span[0], "to": span[1], "when": f"{span[0]:.1f} to {span[1]:.1f}"}


def _states(failure: Failure) -> Iterator[Spec]:
    """States with the same word are one: what changes within them is how much is left to copy."""
    told: list[State] = []
    for state in failure.states:
        if not told or told[-1].word != state.word:
            told.append(state)
    for state, later in zip_longest(told, told[1:]):
        end_s = later.begin_s if later else failure.ends_s
        if end_s > 0:
            span = max(0.0, state.begin_s), end_s
            yield {"kind": state.kind, "word": state.word, "text": state.text, "host": state.host} | _span(span)
