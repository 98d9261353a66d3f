"""The page and the terminal's tables: what they say, that they are whole, and that names cannot break out."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic
from rich.console import Console

from volumetry.report import page, words
from volumetry.report.charts import charts
from volumetry.report.model import Report
from volumetry.report.parts import colour
from volumetry.report.terminal import ladders

HOSTILE = """</script><img src=x onerror=alert(1)>'"&{{ 7 * 7 }}"""


class Elements(HTMLParser):
    """Every element with its attributes, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def report() -> Report:
    return synthetic.standard_report()


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return page.render(report, "/* the charts' script */")


def test_the_page_needs_nothing_else(html: str) -> None:
    parsed = Elements(html)
    assert not [tag for tag, attributes in parsed.elements if {"src", "srcset", "data", "action"} & set(attributes)]
    assert not parsed.of("link")
    assert not parsed.of("iframe")
    assert all(str(link["href"]).startswith("#") for link in parsed.of("a"))
    assert "@import" not in html
    assert "url(" not in html
    (policy,) = [meta["content"] for meta in parsed.of("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in str(policy)


def test_every_figure_of_the_report_is_in_a_table(report: Report, html: str) -> None:
    values = {float(element["value"] or "nan") for element in Elements(html).of("data")}
    for panel in report.panels:
        for step in panel.steps:
            estimates = (step.rate, step.bw_bytes_per_s, step.rtt_us, step.cpu_pct_per_kiops)
            assert {estimate.median for estimate in estimates if estimate} <= values
            assert {-cost.pct for cost in (step.against_previous, step.against_first) if cost} <= values
            for found in step.latency.values():
                assert {found.p50_us, found.p99_us, found.p999_us} <= values


def test_the_page_has_each_section_and_a_place_for_each_chart(report: Report, html: str) -> None:
    parsed = Elements(html)
    sections = [section["id"] for section in parsed.of("section")]
    assert sections == ["answer", "ladder", "latency", "tunings", "cpu", "time", "trust", "provenance", "again"]
    assert {str(link["href"]) for link in parsed.of("a")} == {f"#{name}" for name in sections if name != "answer"}
    places = [div["data-chart"] for div in parsed.of("div") if "data-chart" in div]
    assert len(places) == len(set(places))
    assert set(places) == {chart.id for chart in charts(report)}
    assert all(div["aria-label"] for div in parsed.of("div") if "data-chart" in div)


def test_what_the_reader_must_know_is_on_the_page(report: Report, html: str) -> None:
    text = " ".join(Elements(html).text)
    for warning in report.warnings:
        assert warning in text
    for attempt in report.left_out:
        assert attempt.reason in text
    assert synthetic.COMMAND in text
    assert f"Seed {report.seed}" in text
    for panel in report.panels[:2]:
        assert words.finding(panel) in text


def test_names_and_reasons_cannot_break_out(report: Report) -> None:
    panel = report.panels[0]
    step = replace(panel.steps[0], topology=HOSTILE)
    hostile = replace(
        report,
        campaign=HOSTILE,
        description=HOSTILE,
        command=HOSTILE,
        ladder=(HOSTILE, *report.ladder[1:]),
        panels=(replace(panel, workload=HOSTILE, tuning=HOSTILE, steps=(step, *panel.steps[1:])),),
        left_out=tuple(replace(attempt, reason=HOSTILE, topology="shared") for attempt in report.left_out[:1]),
        series=(),
        deviations=(),
        equals=(),
        tunings=(),
        provenance=(),
    )
    html = page.render(hostile, "window.ended = '</script>';")
    parsed = Elements(html)
    assert not parsed.of("img")
    assert len(parsed.of("script")) == 3
    assert "".join(parsed.text).count(HOSTILE) >= 5  # shown as it was written
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert HOSTILE in json.dumps(json.loads(data[1]), ensure_ascii=False).replace('\\"', '"')


def test_the_page_stays_small(report: Report, tmp_path: Path) -> None:
    page.write_bundle(tmp_path / "build" / "bundle.js")
    bundle = (tmp_path / "build" / "bundle.js").read_text(encoding="utf-8")
    assert "vegaEmbed" in bundle
    assert len(page.render(report, bundle).encode()) < 1.5e6


def test_an_empty_report_is_still_a_page(report: Report) -> None:
    panels = tuple(replace(panel, steps=(), refusal="", ceilings=()) for panel in report.panels)
    empty = replace(
        report, panels=panels, series=(), curves=(), deviations=(), equals=(), tunings=(), verdicts=(), left_out=(),
        hosts=(), provenance=(), warnings=(), ended=None, drift_pct_per_hour=None,
    )  # fmt: skip
    text = " ".join(Elements(page.render(empty, "")).text)
    assert "No valid trial: nothing can be said." in text


def test_a_topology_has_one_colour(report: Report) -> None:
    colours = [colour(report, name) for name in report.ladder]
    assert len(set(colours)) == len(colours)
    for chart in charts(report):
        for layer in chart.spec.get("layer", []):
            scale = layer["encoding"].get("color", {}).get("scale", {}) if "encoding" in layer else {}
            for name, drawn in zip(scale.get("domain", []), scale.get("range", []), strict=True):
                if name in report.ladder:
                    assert drawn == colour(report, name)


def printed(report: Report, width: int) -> str:
    console = Console(width=width, color_system=None, record=True, quiet=False, file=None)
    with console.capture() as captured:
        console.print(ladders(report, width))
    return captured.get()


def test_the_terminal_shows_the_ladder(report: Report) -> None:
    text = printed(report, 120)
    panel = report.panels[0]
    for step in panel.rungs:
        assert step.rate is not None
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{step.number} {step.topology} ")][:1]
        assert words.count(step.rate.median) in line
        assert words.change(step.against_previous) in line
        assert f"{step.trials_valid}/{len(step.trials)}" in line
    assert "█" * 20 in text
    assert "these are not figures of EBS" in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_terminals_tables_fit(report: Report, width: int) -> None:
    text = printed(report, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
