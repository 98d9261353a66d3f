"""Figures and findings in words, the same on the page and in a terminal."""

from collections.abc import Iterator

from volumetry.report.model import Cost, Estimate, Panel, Report, Step

NONE = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"  # a unit stays with its number
MINUS = "\N{MINUS SIGN}"


def count(value: float | None) -> str:
    """Operations a second, or how many: 1,890; 12.4 below a hundred."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def rate(bytes_per_s: float | None) -> str:
    """Throughput: 7.4 MiB/s."""
    return NONE if bytes_per_s is None else f"{bytes_per_s / 2**20:,.1f}{SPACE}MiB/s"


def latency(microseconds: float | None) -> str:
    """A latency with three digits: 514 µs, 1.14 ms, 2.5 s."""
    if microseconds is None:
        return NONE
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:.3g}{SPACE}{unit}"
    return f"{microseconds:.3g}{SPACE}µs"


def share(percent: float | None) -> str:
    """A share: 12.6 %."""
    return NONE if percent is None else f"{percent:.1f}{SPACE}%"


def change(cost: Cost | None) -> str:
    """A cost as the change that it is: minus 29.9 %, or +4.6 % where something was gained."""
    return NONE if cost is None else signed(-cost.pct) + SPACE + "%"


# Without an interval, what is smaller than this is not called a loss or a gain.
NOISE_PCT = 5.0


def way(cost: Cost | None) -> str:
    """``lost``, ``gained``, or ``level``: nothing is known, or it may as well be nothing."""
    if cost is None:
        return "level"
    if cost.low_pct is None or cost.high_pct is None:
        clear = abs(cost.pct) > NOISE_PCT
    else:
        clear = not cost.low_pct <= 0 <= cost.high_pct
    return "level" if not clear else "lost" if cost.pct > 0 else "gained"


def change_interval(cost: Cost | None) -> str:
    """The interval of a change; empty without one."""
    if cost is None or cost.low_pct is None or cost.high_pct is None:
        return ""
    return f"{signed(-cost.high_pct)} to {signed(-cost.low_pct)}{SPACE}%"


def interval(estimate: Estimate | None) -> str:
    """The interval of a median, empty without one: 1,875 to 1,918."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{count(estimate.low)} to {count(estimate.high)}"


def drift(report: Report) -> str:
    """As "+1.2 % over 3.5 hours"; empty where too few trials say anything."""
    if report.drift_pct is None:
        return ""
    span = f"{report.span_hours:.1f} hours" if report.span_hours >= 2 else f"{60 * report.span_hours:.0f} minutes"
    return f"{signed(report.drift_pct)} % over {span}"


def signed(value: float) -> str:
    """One decimal, with a sign unless it is nothing."""
    rounded = f"{abs(value):.1f}"
    sign = "" if rounded == "0.0" else "+" if value > 0 else MINUS
    return sign + rounded


def left_out(step: Step) -> str:
    """Why trials of a step are left out: 1 degraded, 2 unsteady."""
    return ", ".join(f"{trials} {verdict}" for verdict, trials in step.left_out.items())


def remaining(panel: Panel) -> float | None:
    """What is left at the last rung, per cent of the first; None where a ladder cannot be read."""
    rungs = panel.rungs
    if panel.refusal or len(rungs) < 2 or rungs[-1].against_first is None:
        return None
    return 100 - rungs[-1].against_first.pct


def finding(panel: Panel) -> str:
    """What the panel says, in a sentence or two."""
    return " ".join(_finding(panel))


def _finding(panel: Panel) -> Iterator[str]:
    rungs, left = panel.rungs, remaining(panel)
    if panel.refusal:
        yield panel.refusal
    elif not rungs:
        yield "No valid trial: nothing can be said."
    elif left is None:
        reached = [f"{step.topology} reaches {count(step.iops.median)} {panel.unit}" for step in rungs if step.iops]
        yield f"{'; '.join(reached)}."
    else:
        first, last = rungs[0], rungs[-1]
        assert first.iops is not None
        assert last.iops is not None
        yield (
            f"{last.topology} keeps {left:.0f}{SPACE}% of what {first.topology} reaches: {count(last.iops.median)} of "
            f"{count(first.iops.median)} {panel.unit}."
        )
        costliest = panel.costliest
        if costliest is not None:
            why = f" ({'; '.join(costliest.changes)})" if costliest.changes else ""
            yield f"The costliest step is {costliest.topology}{why}: {change(costliest.against_previous)}."
