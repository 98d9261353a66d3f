"""The report as one HTML page that needs nothing else: no network, and for its tables no JavaScript either.

Rendering needs jinja2 alone. The script that draws the charts is put into a file when functions are packaged
(``write_bundle``), since the package that holds it has no place in a function.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from volumetry.report import words
from volumetry.report.charts import charts, is_ladder, path_name, series_id
from volumetry.report.failure_charts import timeline_id
from volumetry.report.model import HostLoad, Panel, Report, Series
from volumetry.report.parts import colour, topologies

HERE = Path(__file__).parent


def write_bundle(path: Path) -> None:
    """Write Vega, Vega-Lite and Vega-Embed as one script (0.9 MB); needs the package vl-convert-python."""
    import vl_convert  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"), encoding="utf-8")


def render(report: Report, bundle: str) -> str:
    """The page; ``bundle`` is the text of the file that ``write_bundle`` wrote."""
    # Within a script element, this alone could end it.
    bundle = bundle.replace("</script", "<\\/script")
    draw = (HERE / "page.js").read_text(encoding="utf-8")
    drawn = charts(report)
    page = _environment().get_template("page.html.j2")
    common, own = _facts(report)
    return page.render(
        report=report,
        sections=[_section(report, place, panel) for place, panel in enumerate(report.panels)],
        cells={(panel.workload, panel.tuning, step.topology): step for panel in report.panels for step in panel.steps},
        topologies=topologies(report),
        common=common,
        own=own,
        words=words,
        colour=lambda topology: colour(report, topology),
        series_id=series_id,
        timeline_id=timeline_id,
        path_name=lambda path: path_name(report, path),
        charts={chart.id: chart for chart in drawn},
        data=_embedded({chart.id: chart.spec for chart in drawn}),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704
        scripts=[Markup(bundle), Markup(draw)],  # noqa: S704
        policy=_policy([bundle, draw]),
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_ in (
        words.count,
        words.rate,
        words.latency,
        words.share,
        words.change,
        words.change_interval,
        words.interval,
        words.way,
        words.left_out,
        words.remaining,
        words.finding,
        words.seconds,
        words.percent,
    ):
        environment.filters[filter_.__name__] = filter_
    return environment


@dataclass(frozen=True)
class _Section:
    """A panel as the page shows it; ``place`` numbers its charts."""

    place: int
    panel: Panel
    directions: tuple[str, ...]
    hosts: tuple[HostLoad, ...]
    has_bytes: bool  # beside a rate that is none of bytes
    has_cpu_per_rate: bool
    series: tuple[Series, ...]  # one of each topology: its chart shows all of its trials
    is_ladder: bool
    is_answer: bool


def _section(report: Report, place: int, panel: Panel) -> _Section:
    def here(one: HostLoad | Series) -> bool:
        return (one.workload, one.tuning) == (panel.workload, panel.tuning)

    stock = panel.tuning == report.base_tuning
    is_path = panel.workload in {path.workload for path in report.paths}
    return _Section(
        place=place,
        panel=panel,
        directions=_directions(panel),
        hosts=tuple(filter(here, report.hosts)),
        has_bytes=panel.unit != "MB/s" and any(step.bw_bytes_per_s for step in panel.steps),
        has_cpu_per_rate=any(step.cpu_pct_per_kiops for step in panel.steps),
        series=tuple({series.topology: series for series in filter(here, report.series)}.values()),
        is_ladder=is_ladder(report, panel),
        is_answer=words.remaining(panel) is not None or (stock and not is_path),
    )


def _directions(panel: Panel) -> tuple[str, ...]:
    """Directions with latencies, all of them together first; a single one is all of them."""
    found = sorted({direction for step in panel.steps for direction in step.latency} - {"all"})
    return ("all", *found) if len(found) > 1 else ("all",)


def _facts(report: Report) -> tuple[dict[str, str], list[str]]:
    """Facts that all topologies share, with their value, and the names of those that differ."""
    names = dict.fromkeys(fact for one in report.provenance for fact in one.facts)
    values = {name: {one.facts.get(name, "") for one in report.provenance} for name in names}
    common = {name: next(iter(found)) for name, found in values.items() if len(found) == 1}
    return common, [name for name in names if name not in common]


def _embedded(value: Any) -> Markup:
    """JSON that a script element may hold, whatever names users gave."""
    text = json.dumps(_rounded(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704


def _rounded(value: Any) -> Any:
    """Six digits are more than a screen can show, and half of what Python writes."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _policy(scripts: Iterable[str]) -> str:
    """A content security policy that lets these scripts run, and nothing be fetched."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"
