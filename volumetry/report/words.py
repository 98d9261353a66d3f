"""Figures and findings in words, the same on the page and in a terminal."""

from collections.abc import Iterator

from volumetry.report.model import Cost, Estimate, Event, Failure, Panel, Path, PublishedRatio, Report, Step

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
    elif not any(step.rate for step in panel.steps):
        yield "No valid trial: nothing can be said."
    elif left is None:
        told = [step for step in panel.steps if step.rate]
        reached = [f"{step.topology} reaches {count(step.rate.median)} {panel.unit}" for step in told if step.rate]
        yield f"{'; '.join(reached)}."
    else:
        first, last = rungs[0], rungs[-1]
        assert first.rate is not None
        assert last.rate is not None
        yield (
            f"{last.topology} keeps {left:.0f}{SPACE}% of what {first.topology} reaches: {count(last.rate.median)} of "
            f"{count(first.rate.median)} {panel.unit}."
        )
        costliest = panel.costliest
        if costliest is not None:
            why = f" ({'; '.join(costliest.changes)})" if costliest.changes else ""
            yield f"The costliest step is {costliest.topology}{why}: {change(costliest.against_previous)}."


# --- failures, the path of a write, published figures ----------------------------------------------------------------


def seconds(value: float | None) -> str:
    """A time: 0.42 s, 12.3 s."""
    return NONE if value is None else f"{value:.2f}{SPACE}s" if value < 1 else f"{value:.1f}{SPACE}s"


def percent(value: float | None) -> str:
    """A per cent without decimals, or with one below ten: 96 %, 4.2 %."""
    return NONE if value is None else f"{value:.0f}{SPACE}%" if value >= 10 else f"{value:.1f}{SPACE}%"


def failure(one: Failure) -> str:
    """What a failure did, in a few sentences."""
    return " ".join([*_load_under(one), writes(one), legs(one)])


def _load_under(one: Failure) -> Iterator[str]:
    if one.stall_s is not None:
        yield f"The load stood still for {seconds(one.stall_s)}."
    if one.degraded_pct is not None:
        yield f"While the failure lasted it went on at {percent(one.degraded_pct)} of before."
    if one.resync_s is not None:
        while_it = f", the load meanwhile at {percent(one.resync_pct)}" if one.resync_pct is not None else ""
        yield f"The resync took {seconds(one.resync_s)}{while_it}."


def failure_line(one: Failure) -> str:
    """What a failure did, in a line: standstill; rate before, during it, during the resync; writes; legs."""
    rates = [f"{count(rate)}{f' ({percent(pct)})' if pct is not None else ''}" for rate, pct in (
        (one.before_rate, None), (one.degraded_rate, one.degraded_pct), (one.resync_rate, one.resync_pct),
    )]  # fmt: skip
    lost = "not checked" if one.writes_lost is None else f"{one.writes_lost:,} of {one.writes_acknowledged or 0:,} lost"
    alike = {None: "not compared", True: "identical", False: "DIFFERENT"}[one.legs_identical]
    return (
        f"stood {seconds(one.stall_s)}; {' → '.join(rates)} {one.unit}; resync {seconds(one.resync_s)}; "
        f"writes {lost}; legs {alike}"
    )


def writes(one: Failure) -> str:
    """What became of the writes that were acknowledged, and whether anybody looked."""
    if one.writes_acknowledged is None:
        return "Acknowledged writes: not checked."
    if one.writes_lost is None:
        return f"{one.writes_acknowledged:,} acknowledged writes: not all could be read back, so nobody knows."
    read = f"{one.writes_acknowledged:,} acknowledged writes were read back from every leg"
    return f"{read}: {'none' if one.writes_lost == 0 else f'{one.writes_lost:,}'} lost or altered."


def legs(one: Failure) -> str:
    """Whether the legs hold the same bytes, and whether anybody looked."""
    if one.legs_identical is None:
        return "Whether the legs are byte-identical: not checked."
    return "The legs are byte-identical." if one.legs_identical else "The legs DIFFER."


def path(one: Path) -> str:
    """Of what a mirrored write is made, in a sentence."""
    if one.mirrored_us is None or one.foretold_us is None or one.beyond_us is None:
        return f"{one.topology}: no valid trial with a round trip: nothing can be said."
    parts = f"the round trip ({latency(one.rtt_us)}) and a write without the peer ({latency(one.local_us)})"
    if one.beyond_us >= 0:
        share_of = percent(100 * one.beyond_us / one.mirrored_us)
        rest = f"make {latency(one.foretold_us)} of it; the other {latency(one.beyond_us)} ({share_of}) are neither"
    else:
        rest = f"together would be {latency(one.foretold_us)}, {latency(-one.beyond_us)} more: they overlap"
    return f"On {one.topology} a mirrored write takes {latency(one.mirrored_us)}: {parts} {rest}."


def against_published(one: PublishedRatio) -> str:
    """A published ratio beside the measured one."""
    here = f"measured {share(one.measured_pct)} ({measured_interval(one)})" if one.measured else "not measured"
    return f"{one.workload}, {one.topology} of {one.base}: published {share(one.published_pct)}, {here}"


def measured_interval(one: PublishedRatio) -> str:
    """The interval of a measured ratio, or why there is none."""
    found = one.measured
    if found is None:
        return "no block with valid trials of both"
    if found.low_pct is None or found.high_pct is None:
        return f"no interval: {found.blocks} of the six blocks that it needs"
    return f"{share(100 - found.high_pct)} to {share(100 - found.low_pct)}"


def latency_change(microseconds: float | None) -> str:
    """A latency with its sign: +25 µs."""
    if microseconds is None:
        return NONE
    return f"{MINUS if microseconds < 0 else '+'}{latency(abs(microseconds))}"


def happened(one: Failure) -> list[Event]:
    """Events and states of a failure, in the order of time."""
    states = [Event(state.begin_s, state.host, "state", state.text) for state in one.states]
    return sorted([*one.events, *states], key=lambda event: event.second)


def hosts(report: Report) -> str:
    """What the hosts of the local region were, and what that makes of their figures; empty elsewhere."""
    kinds = {"guest": "virtual machines on an emulated CPU", "process": "processes on one machine"}
    found = [text for kind, text in kinds.items() if kind in report.host_kind]
    return f"Hosts were {' and '.join(found)}: read ratios, not absolute figures." if found else ""
