"""A report for a terminal: its ladders, and a line for each of the rest."""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from volumetry.report import words
from volumetry.report.model import Cost, Panel, Report, Step

BAR_CELLS = 20
# Below this width, the bars and the CPU make room.
WIDE = 108
_STYLES = {"lost": "red", "gained": "green", "level": "dim"}


def ladders(report: Report, width: int) -> Group:
    """One table a load and tuning, with what it says, then what to know before believing it; ``width`` in cells.

    Before that, a line for each path, each failure and each published figure.
    """
    return Group(*_parts(report, width >= WIDE))


def _parts(report: Report, wide: bool) -> Iterator[RenderableType]:
    for panel in report.panels:
        yield _table(panel, wide)
        yield Text(f"{words.finding(panel)}\n", style="bold")
    for path in report.paths:
        yield Text(words.path(path))
    for failure in report.failures:
        yield Text.assemble((f"{failure.topology}, {failure.event}: ", "bold"), words.failure_line(failure))
    for ratio in report.published.ratios if report.published else ():
        yield Text(words.against_published(ratio))
    if report.paths or report.failures or report.published:
        yield Text()
    for warning in report.warnings:
        yield Text(f"! {warning}", style="yellow")


def _table(panel: Panel, wide: bool) -> Table:
    table = Table(
        title=Text.assemble((f"{panel.workload}  {panel.tuning}  ", "bold"), (panel.load, "dim")),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    rows = [_row(panel, step) for step in panel.steps]
    for name in rows[0]:
        if wide or name not in ("", "CPU"):
            table.add_column(name, justify="left" if name in ("topology", "") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[str(column.header)] for column in table.columns))
    return table


def _row(panel: Panel, step: Step) -> dict[str, Text]:
    """The cells of a step, by column."""
    latency = step.latency.get("all")
    number = f"{step.number} " if step.number else "  "
    return {
        "topology": Text(number + step.topology),
        "": Text(_bar(step.rate.median / panel.highest if step.rate and panel.highest else 0.0), style="cyan"),
        panel.unit: Text(words.count(step.rate.median if step.rate else None), style="bold"),
        "Δ step": _change(step.against_previous),
        "Δ first": _change(step.against_first),
        "p50": Text(words.latency(latency.p50_us if latency else None)),
        "p99": Text(words.latency(latency.p99_us if latency else None)),
        "CPU": Text(words.share(step.cpu_pct.median if step.cpu_pct else None)),
        "valid": Text(f"{step.trials_valid}/{len(step.trials)}"),
    }


def _change(cost: Cost | None) -> Text:
    return Text(words.change(cost), style=_STYLES[words.way(cost)])


def _bar(share: float) -> str:
    """A bar of eighths of a cell; ``share`` from 0 to 1."""
    eighths = round(min(share, 1.0) * BAR_CELLS * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
