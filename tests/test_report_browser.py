"""The page in a real browser: charts drawn from the figures, nothing fetched, every look."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
import synthetic_drbd
from playwright.sync_api import Browser, Page, sync_playwright

from volumetry.report import page, words
from volumetry.report.charts import charts
from volumetry.report.failure_charts import timeline_id
from volumetry.report.model import Report
from volumetry.tables import partition

pytestmark = pytest.mark.browser

# Without these, Chromium asks its maker for updates at every start.
QUIET = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()


@pytest.fixture(scope="module")
def report() -> Report:
    return synthetic.standard_report()


@pytest.fixture(scope="module")
def url(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    page.write_bundle(folder / "bundle.js")
    html = page.render(report, (folder / "bundle.js").read_text(encoding="utf-8"))
    (folder / "report.html").write_text(html, encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: scripts/system-packages --for-tests")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield started
        started.close()


def opened(browser: Browser, url: str, *, width: int = 1280, scheme: str = "light") -> Page:
    """The page, its charts drawn."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    tab.goto(url)
    tab.wait_for_selector("html[data-drawn]", timeout=60_000)
    return tab


@pytest.fixture(scope="module")
def tab(browser: Browser, url: str) -> Page:
    return opened(browser, url)


def test_it_draws_without_a_complaint_and_without_the_network(browser: Browser, url: str, report: Report) -> None:
    tab = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.context.set_offline(True)
    tab.goto(url)
    tab.wait_for_selector("html[data-drawn]", timeout=60_000)
    assert said == []
    assert asked == [url]
    assert tab.locator("[data-chart] svg").count() == len(charts(report))
    tab.close()


def test_the_ladders_bars_are_its_steps_and_as_long_as_their_medians(tab: Page, report: Report) -> None:
    for place, panel in enumerate(report.panels):
        bars = tab.locator(f'[data-chart="ladder-{place}"] .rungs_marks path')
        measured = [step for step in panel.steps if step.rate]
        assert bars.count() == len(measured)
        if not measured:
            continue
        widths = [box["width"] for box in (bar.bounding_box() for bar in bars.all()) if box]
        longest = max(step.rate.median for step in measured if step.rate)
        expected = [max(widths) * step.rate.median / longest for step in measured if step.rate]
        assert widths == pytest.approx(expected, rel=0.01, abs=1)


def test_the_figures_on_the_page_are_those_of_the_queries(tab: Page) -> None:
    cells = synthetic.standard().query(
        f"SELECT topology, iops FROM cells WHERE execution = '{synthetic.EXECUTION}' AND workload = 'randrw-4k' "
        f"AND tuning = 'stock' AND dt = '{partition(synthetic.BEGAN)}'"
    )
    rows = tab.locator("#ladder .panel").first.locator("tbody tr")
    shown = {}
    for row in rows.all():
        figure = row.locator("td data").first
        shown[row.locator(".chip").inner_text()] = (figure.get_attribute("value"), figure.inner_text())
    assert shown == {cell["topology"]: (cell["iops"], words.count(float(cell["iops"]))) for cell in cells}


def test_pointing_at_a_bar_tells_its_figures(tab: Page, report: Report) -> None:
    step = report.panels[0].steps[2]
    tab.locator('[data-chart="ladder-0"] .rungs_marks path').nth(2).hover(position={"x": 10, "y": 10})
    tooltip = tab.locator("#vg-tooltip-element")
    tooltip.wait_for(state="visible")
    assert step.topology in tooltip.inner_text()
    assert words.change(step.against_previous) in tooltip.inner_text()


def test_pointing_into_a_trial_tells_of_that_second(tab: Page, report: Report) -> None:
    series = report.series[0]
    chart = tab.locator(f'[data-chart="series-{series.workload}-{series.tuning}-{series.topology}"]')
    points = chart.locator(".hover_marks path")
    trials = [one for one in report.series if (one.workload, one.tuning, one.topology) == (
        series.workload, series.tuning, series.topology)]  # fmt: skip
    assert points.count() == sum(len(one.points) for one in trials)
    points.nth(17).hover(force=True)
    tooltip = tab.locator("#vg-tooltip-element")
    tooltip.wait_for(state="visible")
    assert "second" in tooltip.inner_text()


def test_dark_and_light_change_the_charts_with_the_page(browser: Browser, url: str) -> None:
    seen = []
    tab = opened(browser, url)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        bar = tab.locator('[data-chart="ladder-0"] .rungs_marks path').first
        seen.append(
            (bar.evaluate("bar => getComputedStyle(bar).fill"), tab.evaluate("getComputedStyle(document.body).color"))
        )
    tab.close()
    assert seen[0] == ("rgb(11, 98, 196)", "rgb(22, 32, 44)")
    assert seen[1][0] != seen[0][0]
    assert seen[1][1] != seen[0][1]


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_screen_scrolls_sideways(browser: Browser, url: str, width: int) -> None:
    tab = opened(browser, url, width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator('[data-chart="ladder-0"] .rungs_marks path').first.bounding_box()["width"] > 0.15 * width  # type: ignore[index]
    tab.close()


def test_the_tables_stand_without_javascript(browser: Browser, url: str, report: Report) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(url)
    first = report.panels[0].steps[0]
    assert first.rate is not None
    assert tab.locator("#ladder tbody tr").first.inner_text().split("\t")[2].startswith(words.count(first.rate.median))
    context.close()


def test_it_prints(tab: Page, tmp_path: Path) -> None:
    printed = tmp_path / "report.pdf"
    tab.pdf(path=printed, format="A4")
    assert printed.stat().st_size > 50_000


@pytest.fixture(scope="module")
def study(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("study")
    page.write_bundle(folder / "bundle.js")
    html = page.render(synthetic_drbd.study_report(), (folder / "bundle.js").read_text(encoding="utf-8"))
    (folder / "report.html").write_text(html, encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("width", [360, 1280])
def test_a_study_with_failures_draws_without_a_complaint(browser: Browser, study: str, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    tab.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(study)
    tab.wait_for_selector("html[data-drawn]", timeout=60_000)
    assert said == []
    assert tab.locator("[data-chart] svg").count() == len(charts(synthetic_drbd.study_report()))
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


def test_a_failure_is_shaded_for_as_long_as_it_lasted(browser: Browser, study: str) -> None:
    tab = opened(browser, study)
    (failure,) = [one for one in synthetic_drbd.study_report().failures if one.event == "cut-all-links"]
    chart = tab.locator(f'[data-chart="{timeline_id(failure)}"]')
    spans, states = (
        [path.evaluate("path => path.getBBox().width") for path in chart.locator(f".{name}_marks path").all()]
        for name in ("spans", "states")
    )
    assert failure.fault is not None
    assert failure.resync is not None
    a_second = sum(states) / failure.ends_s
    lasted = [failure.fault[1] - failure.fault[0], failure.resync[1] - failure.resync[0]]
    assert [width / a_second for width in spans] == pytest.approx(lasted, abs=0.05)
    assert [width / a_second for width in states] == pytest.approx([14.2, 4.0, 6.3, 15.5], abs=0.05)
    tab.close()
