"""The report: everything in one file, escaped, allowed by its policy; and in a real browser, where there is one."""

import base64
import hashlib
import json
import re
import shutil

import polars as pl
import pytest

from scaling_study.drawing import report_of
from scaling_study.errors import UserError
from scaling_study.present.report import ReportFigure, build_report, report_page
from scaling_study.present.report.build import in_script, runs_table
from scaling_study.records import SCHEMA
from scaling_study.spec import PREDICT, Config
from scaling_study.timeline import SCHEMA as SPANS
from tests.unit.samples import CONFIG, ROOT

HOSTILE = "</script><script>window.broken = true</script><img src=x onerror='window.broken = true'>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def record(run_id, provenance="predicted", **values):
    return {**dict.fromkeys(SCHEMA), "run_id": run_id, "provenance": provenance, "outcome": "ok", **values}


def frame(*records):
    return pl.DataFrame(records, schema=SCHEMA)


def figure(name="hst-04", run_id="a", text="plain"):
    rows = [
        {"gpus": 8, "mfu": 0.41, "provenance": "predicted", "run_id": run_id, "text": text},
        {"gpus": 16, "mfu": 0.4, "provenance": "reported", "run_id": run_id, "text": text},
    ]
    spec = {
        "datasets": {"d": rows}, "data": {"name": "d"}, "mark": {"type": "point", "filled": True}, "width": 200,
        "encoding": {"x": {"field": "gpus", "type": "quantitative"}, "y": {"field": "mfu", "type": "quantitative"}},
        "usermeta": {"claims": ["a-claim"], "runs": [
            {"run_id": run_id, "provenance": one, "outcome": "ok"} for one in ("predicted", "reported")
        ]},
    }  # fmt: skip
    return ReportFigure(
        key=f"paper-{name}", name=name, title=text, notes=(text,), claims=("a-claim",), content=json.dumps(spec)
    )


CLAIM = {
    "id": "a-claim", "says": "It grows.", "source": "HST 4.1", "place": "model", "verdict": "holds", "value": "5%",
    "interval": "4% to 6%", "measured": "a change", "reason": "", "expected": "at least 4%",
    "figures": "hst-04 hst-03 cr-01",
}  # fmt: skip


def page(**changes):
    study = CONFIG.study("paper")
    given = {
        "figures": {"paper": [figure()]}, "records": [frame(record("a", mfu=0.41), record("b", mfu=1 / 3))],
        "timelines": {}, "claims": [CLAIM],
    } | changes  # fmt: skip
    return report_page([study], given["figures"], given["records"], given["timelines"], pl.DataFrame(given["claims"]))


def script(html, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)[1])


def test_runs_are_columns_and_rows_without_what_no_record_has():
    table = runs_table([frame(record("b", mfu=1 / 3)), frame(record("a", "measured", nodes=2), record("b", mfu=0.5))])
    assert table == {
        "columns": ["run_id", "provenance", "nodes", "outcome", "mfu"],
        "rows": [["a", "measured", 2, "ok", None], ["b", "predicted", None, "ok", 0.333333]],
    }


def test_the_page_holds_its_figures_runs_and_links():
    html = page()
    assert script(html, "spec-paper-hst-04")["datasets"]["d"][0]["mfu"] == 0.41
    data = script(html, "data")
    assert [row[0] for row in data["runs"]["rows"]] == ["a", "b"]
    assert data["figures"]["paper-hst-04"]["claims"] == ["a-claim"]
    assert '<a href="#paper-hst-04">hst-04</a>, hst-03, cr-01' in html
    both = [figure("hst-03a"), figure("hst-03b"), figure()]
    assert '<a href="#paper-hst-03a">hst-03a</a>, <a href="#paper-hst-03b">hst-03b</a>' in page(figures={"paper": both})


def test_a_timeline_s_times_begin_with_its_first_span():
    spans = pl.DataFrame(
        [{"rank": 0, "stream": "s", "kind": "compute", "op": "x", "start_ns": 10**18 + 5, "end_ns": 10**18 + 9}],
        schema=SPANS,
    )
    found = script(page(timelines={"a": spans}), "data")["timelines"]["a"]
    assert (found["start_ns"], found["end_ns"], found["op"]) == ([0], [4], ["x"])


@pytest.mark.parametrize("text", [HOSTILE, "<!--", "\u2028", "]]>", "&lt;"])
def test_what_stands_in_a_script_cannot_end_it_and_is_what_it_was(text):
    inside = in_script({"a": text})
    assert not set(inside) & set("<>&\u2028")
    assert json.loads(inside) == {"a": text}


def test_whatever_a_configuration_or_a_record_says_is_text():
    hostile = {**CLAIM, "says": HOSTILE, "verdict": HOSTILE, "place": HOSTILE, "value": HOSTILE}
    plain = page()
    html = page(
        figures={"paper": [figure(text=HOSTILE, run_id=HOSTILE)]}, records=[frame(record(HOSTILE))], claims=[hostile]
    )
    for opening in ("<script", "<img", "</script"):
        assert html.count(opening) == plain.count(opening)


def test_its_policy_allows_just_its_own_scripts_and_style():
    html = page()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]
    inline = re.findall(r"<(script|style)>(.*?)</\1>", html, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for _, content in inline]
    assert [kind for kind, _ in inline] == ["style", "script", "script"]
    assert re.findall(r"sha256-([^&']+)", policy.replace("&#39;", "'")) == [*digests[1:], digests[0]]
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_missing_or_foreign_figure_is_one_error(tmp_path):
    study = CONFIG.study("paper")
    with pytest.raises(UserError, match="no such file"):
        build_report([study], {"paper": {}}, {}, pl.DataFrame(), tmp_path, tmp_path / "report.html")
    (tmp_path / "paper").mkdir()
    for name in study.figures:
        (tmp_path / "paper" / f"{name}.vl.json").write_text('{"mark": "point"}')
    with pytest.raises(UserError, match="not a figure of this project"):
        build_report([study], {"paper": {}}, {}, pl.DataFrame(), tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of everything that is committed."""
    cached = ROOT / "results" / "cached"
    records = tuple(
        cached / study / platform / f"{sweep}.parquet"
        for study, platform in (("mini", "local"), ("paper", PREDICT))
        for sweep, one in CONFIG.study(study).sweeps.items()
        if one.status == "ready"
    )
    timelines = tuple(sorted((cached / "paper" / PREDICT / "timelines").glob("*.parquet")))
    tables = tuple(sorted((cached / "paper" / "model").glob("*.parquet")))
    path = tmp_path_factory.mktemp("report") / "report.html"
    report_of(Config(ROOT / "config"), records, tables, timelines, ROOT / "figures", path)
    return path


def test_the_report_of_what_is_committed_is_small_and_whole(report):
    html = report.read_text()
    assert len(html.encode()) < 10e6
    for study in ("mini", "paper"):
        for name in CONFIG.study(study).figures:
            assert f'id="spec-{study}-{name}"' in html
    assert len(script(html, "data")["runs"]["rows"]) > 1000


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """A function that opens a file, and what went wrong or was asked of a network since."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab, wrong = context.new_page(), []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)

    def visit(path):
        tab.goto(path.as_uri())
        tab.locator("figure").first.scroll_into_view_if_needed()  # figures are drawn when they come near
        tab.wait_for_selector(".chart svg", timeout=60_000)
        return tab

    yield visit, wrong
    context.close()


def test_in_a_browser_every_figure_is_drawn_and_nothing_is_asked_for(report, opened):
    visit, wrong = opened
    tab = visit(report)
    charts = tab.locator("figure")
    for index in range(charts.count()):
        charts.nth(index).scroll_into_view_if_needed()
        charts.nth(index).locator(".chart svg").wait_for(timeout=60_000)
    assert charts.count() == sum(len(CONFIG.study(study).figures) for study in ("mini", "paper"))
    assert wrong == []


def test_in_a_browser_it_answers_within_two_seconds(report, browser):
    """Until its first chart is drawn and a filter has had its effect; of the page's own thread, others may be busy."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        tab = context.new_page()
        inside = context.new_cdp_session(tab)
        inside.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(report.as_uri())
        tab.locator("figure").first.scroll_into_view_if_needed()
        tab.wait_for_selector(".chart svg")
        tab.locator("#claim-filters select[name=verdict]").select_option("does not hold")
        tab.wait_for_function("document.querySelector('#claim-count').innerText.endsWith('shown')")
        metrics = {one["name"]: one["value"] for one in inside.send("Performance.getMetrics")["metrics"]}
    assert 0.1 < metrics["TaskDuration"] < 2.0


def test_in_a_browser_switches_tooltips_runs_and_filters_work(tmp_path, opened):
    visit, wrong = opened
    path = tmp_path / "page.html"
    hostile = {**CLAIM, "id": "b-claim", "verdict": "does not hold", "says": HOSTILE}
    path.write_text(page(claims=[CLAIM, hostile], figures={"paper": [figure(text=HOSTILE, run_id=HOSTILE)]},
                         records=[frame(record(HOSTILE, mfu=0.41), record("b"))]))  # fmt: skip
    tab = visit(path)
    points = tab.locator("#paper-hst-04 .mark-symbol path")
    assert points.count() == 2
    tab.get_by_role("checkbox", name="reported").uncheck()
    tab.wait_for_function("document.querySelectorAll('#paper-hst-04 .mark-symbol path').length === 1")
    points.first.hover()
    assert "predicted" in tab.locator(".tooltip").inner_text()
    points.first.click()
    assert tab.locator("#run-title").inner_text() == HOSTILE
    assert "0.41" in tab.locator("#run-values").inner_text()
    tab.keyboard.press("Escape")
    tab.locator("#claim-filters select[name=verdict]").select_option("does not hold")
    assert tab.locator("#claim-table tbody tr:visible").count() == 1
    assert tab.locator("#claim-count").inner_text() == "1 shown"
    tab.locator("#run-filters input").fill("b")
    assert tab.locator("#run-table button").all_inner_texts() == [HOSTILE, "b"]  # both ids hold the letter
    assert not tab.evaluate("window.broken === true")
    assert wrong == []


def test_in_a_browser_a_keyboard_reaches_a_run(tmp_path, opened):
    visit, _ = opened
    path = tmp_path / "page.html"
    path.write_text(page())
    tab = visit(path)
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    tab.keyboard.press("Enter")
    tab.locator("#paper-hst-04 .run-list button").first.wait_for()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.locator("#run").wait_for()
    assert tab.locator("#run-title").inner_text() == "a"
