"""What a reader must know before believing a figure of a report."""

from collections import Counter
from collections.abc import Iterator

from volumetry.report import words
from volumetry.report.model import Report, Step
from volumetry.statistics import MIN_FOR_INTERVAL

STEAL_PCT = 5.0
DRIFT_PCT = 5.0
# A percentile with fewer operations above it is an anecdote.
TAIL_OPERATIONS = 10


def warnings(report: Report) -> Iterator[str]:
    """Sentences, the gravest first."""
    yield from _of_the_data(report)
    yield from _of_the_place(report)
    yield from _of_the_trials(report)
    yield from _of_the_method(report)
    yield from _of_the_machine(report)


def _of_the_data(report: Report) -> Iterator[str]:
    for failure in report.failures:
        if failure.writes_lost or failure.legs_identical is False:
            told = f"{words.writes(failure)} {words.legs(failure)}"
            yield f"{failure.topology} under {failure.event}, repetition {failure.repetition}: {told}"


def _of_the_place(report: Report) -> Iterator[str]:
    if "process" in report.host_kind or "guest" in report.host_kind:
        yield (
            "Measured in the local region: its round-trip times are inputs, not findings, and what else ran on the "
            "machine is part of every figure."
        )
    if "process" in report.host_kind:
        yield "Its hosts are processes and its volumes throttled files: these are not figures of EBS."
    if "guest" in report.host_kind:
        yield (
            "Its hosts are virtual machines on an emulated CPU and its volumes throttled files: read ratios, not "
            "absolute figures."
        )


def _of_the_trials(report: Report) -> Iterator[str]:
    told = report.trials + len(report.failures)
    if report.planned > told:
        yield f"{report.planned - told} of {report.planned} planned trials left no result."
    if report.failures:
        yield f"{len(report.failures)} trials ran under a failure: they are told by themselves and enter no comparison."
    totals: Counter[str] = Counter()
    for count in report.verdicts:
        totals.update({verdict: trials for verdict, trials in count.counts.items() if verdict != "valid"})
    if totals:
        words = ", ".join(f"{trials} {verdict}" for verdict, trials in sorted(totals.items()))
        yield f"{totals.total()} of {report.trials} trials are left out of every comparison: {words}."
    for panel in report.panels:
        if panel.refusal:
            yield f"{panel.workload}, {panel.tuning}: {panel.refusal}"


def _of_the_method(report: Report) -> Iterator[str]:
    steps = [(panel, step) for panel in report.panels for step in panel.steps]
    few = [step for _, step in steps if 0 < step.trials_valid < MIN_FOR_INTERVAL]
    if few:
        yield (
            f"{len(few)} of {len(steps)} cells have fewer than {MIN_FOR_INTERVAL} valid trials: their medians have no "
            "interval, and small differences between them mean nothing."
        )
    mixed = {step.topology: step.changes for _, step in steps if len(step.changes) > 1}
    for topology, changes in mixed.items():
        words = "; ".join(changes)
        yield f"The step to {topology} changes {len(changes)} things, and its cost is theirs together: {words}."
    thin = dict.fromkeys(f"{panel.workload} on {step.topology}" for panel, step in steps if _thin_tail(step))
    if thin:
        yield f"p99.9 has fewer than {TAIL_OPERATIONS} operations above it: {', '.join(thin)}."


def _thin_tail(step: Step) -> bool:
    found = step.latency.get("all")
    return found is not None and found.operations < 1000 * TAIL_OPERATIONS


def _of_the_machine(report: Report) -> Iterator[str]:
    stolen = max((host.steal_pct or 0.0 for host in report.hosts), default=0.0)
    if stolen > STEAL_PCT:
        yield f"Others on the same machine took up to {stolen:.0f} % of a host's CPU during valid trials."
    if report.drift_pct is not None and abs(report.drift_pct) > DRIFT_PCT:
        yield (
            f"Figures drifted by {words.drift(report)}. Costs are taken within blocks and hold; a cell's median mixes "
            "early and late trials."
        )
