"""The viewer in a real browser: served and as a file, with the keyboard and the mouse. Skips where there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from viewer_runs import make_run, metrics_line, write_step

from callwright.training.viewer.export import export

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.integration, pytest.mark.slow]
DEADLINE_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox does not start for root.
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails the test at any error in its console, and at any request to another place."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(DEADLINE_MS)
    problems: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith(("file://", "http://127.0.0.1:", "data:"))] == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "one", steps=4, per_step=30)


@contextmanager
def served(*words: str) -> Iterator[str]:
    """The address of ``callwright view`` on a free port, stopped by the signal that a terminal sends."""
    command = [sys.executable, "-m", "callwright", "view", *words, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            match = re.search(r"at (http://127\.0\.0\.1:\d+)", line)
            assert match is not None, line + process.stderr.read()
            yield match[1]
        finally:
            process.terminate()
            process.wait(30)


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("html[data-ready]")


def file_of(folder: Path, *runs: Path) -> str:
    path = folder / "page.html"
    path.write_text(export(runs), encoding="utf-8")
    return path.as_uri()


def column(page: Page, name: str) -> list[str]:
    """The visible texts of a column, top down."""
    heads = page.locator("#grid-head th").all_inner_texts()
    place = [head.split(" ")[0].strip() for head in heads].index(name) + 1
    return page.locator(f"#grid-body tr[data-place] td:nth-child({place})").all_inner_texts()


def status(page: Page, begins: str) -> None:
    page.wait_for_function("text => document.getElementById('status').textContent.startsWith(text)", arg=begins)


def test_filter_sort_open_step_through_and_come_back(page: Page, run: Path, tmp_path: Path) -> None:
    open_page(page, file_of(tmp_path, run))
    status(page, "120 of 120 rollouts")
    page.select_option("select[name=outcome]", "policy_fault")
    status(page, "24 of 120")
    page.select_option("select[name=rejection]", "missing_key")
    status(page, "12 of 120")
    page.select_option("select[name=family]", "compute")
    assert set(column(page, "Family")) == {"compute"}
    page.click("#filters button[type=reset]")
    status(page, "120 of 120")
    page.fill("input[name=stepFrom]", "2")
    page.fill("input[name=stepTo]", "2")
    page.fill("input[name=rewardFrom]", "1.5")
    status(page, "15 of 120")
    page.click("#grid-head th[data-column=reward] button")
    page.click("#grid-head th[data-column=reward] button")
    assert page.get_attribute("#grid-head th[data-column=reward]", "aria-sort") == "descending"
    rewards = [float(text) for text in column(page, "Reward")]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] == 2.9

    page.click("#grid-body tr[data-place='1']")
    status(page, "rollout 2 of 15: scored, reward 2.8")
    page.click("#next")
    status(page, "rollout 3 of 15")
    page.click("#previous")
    page.click("#previous")
    status(page, "rollout 1 of 15: policy_fault, reward 2.9")
    assert page.is_disabled("#previous")
    text = page.inner_text("article")
    assert "2.9 = correct 0 + clean 0" in text
    assert "there is no answer; 1 refused call; no rule was broken" in text
    assert '"hits": []' in page.locator(".calls pre[aria-label=result]").inner_text()
    page.go_back()
    status(page, "rollout 2 of 15")
    page.click("text=Back to the table")
    status(page, "15 of 120")
    assert page.locator("#grid").evaluate("node => node === document.activeElement")


def test_everything_by_keyboard(page: Page, run: Path, tmp_path: Path) -> None:
    open_page(page, file_of(tmp_path, run))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.focus("#grid-head th[data-column=tokens] button")
    page.keyboard.press("Enter")
    assert page.get_attribute("#grid-head th[data-column=tokens]", "aria-sort") == "ascending"
    assert page.evaluate("location.hash") == ""  # Enter sorted, and opened nothing
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-0"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.focus("#grid")
    for key, row in (
        ("End", 119),
        ("ArrowUp", 118),
        ("Home", 0),
        ("ArrowDown", 1),
        ("PageDown", None),
        ("ArrowUp", None),
    ):
        page.keyboard.press(key)
        current = page.get_attribute("#grid", "aria-activedescendant")
        assert current is not None
        assert row is None or current == f"row-{row}"
        line = page.locator(f"#{current}")
        assert line.get_attribute("aria-selected") == "true"
        box, view = line.bounding_box(), page.locator("#scroller").bounding_box()
        assert box is not None
        assert view is not None
        assert view["y"] <= box["y"]
        assert box["y"] + box["height"] <= view["y"] + view["height"] + 1
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    status(page, "rollout 1 of 120")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.keyboard.press("ArrowRight")
    status(page, "rollout 2 of 120")
    page.focus(".all-tokens")
    for _ in range(10):
        page.keyboard.press("ArrowRight")  # within the tokens: the rollout stays
    status(page, "rollout 2 of 120")
    assert page.inner_text(".about").startswith("10 of ")
    assert 'given "ö"' in page.inner_text(".about")
    page.keyboard.press("Escape")
    status(page, "120 of 120")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-2"


def test_tokens_are_shaded_and_hostile_text_stays_text(page: Page, run: Path, tmp_path: Path) -> None:
    open_page(page, file_of(tmp_path, run) + "#/0/step-000001/1")
    status(page, "rollout")
    assert page.title() == "one – callwright"
    assert page.locator("article img, article script").count() == 0
    text = page.inner_text("article")
    assert "</script><script>document.title='owned'" in text
    assert "\\u{202e}" in text
    assert "\\u{d800}" in text

    def shade(turn: int) -> Any:
        token = page.locator(".turn").nth(turn).locator(".token").first
        return token.evaluate(
            "node => [getComputedStyle(node).backgroundColor, node.style.getPropertyValue('--weight')]"
        )

    clear = "rgba(0, 0, 0, 0)"
    assert shade(0)[0] == clear  # given
    assert shade(1)[1] == "0.13"  # half a nat of four
    assert shade(3)[1] == "0.75"
    by_logprob = shade(1)[0]
    assert by_logprob != clear
    page.check("input[value=advantage]")
    page.wait_for_selector(".by-advantage")
    assert shade(0)[0] == clear
    assert shade(1) == shade(3)  # the advantage is the rollout's
    assert shade(1)[1] == "0.50"
    assert shade(1)[0] != by_logprob
    assert page.locator(".turn.sampled").count() == 2


def test_two_runs_stand_side_by_side(page: Page, run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "two", steps=4, per_step=30, question="where is Köln?")
    open_page(page, file_of(tmp_path, run, other))
    status(page, "240 of 240 rollouts")
    assert page.locator("#charts polyline.run-0").count() == page.locator("#charts polyline.run-1").count() > 0
    page.select_option("select[name=run]", "1")
    status(page, "120 of 240")
    page.focus("#grid")
    page.keyboard.press("Enter")
    status(page, "rollout 1 of 120")
    assert page.locator("article").count() == 2
    assert page.locator("article h2").all_inner_texts() == ["one: compute/train/0/0", "two: compute/train/0/0"]
    assert "the same key, but another question" in page.inner_text("#status")
    assert page.locator("article h2").nth(1).evaluate("node => node === document.activeElement")


def test_curves_are_smoothed_and_events_filtered(page: Page, run: Path, tmp_path: Path) -> None:
    open_page(page, file_of(tmp_path, run))
    reward = page.locator("figure", has_text="reward")
    assert "0.167 → 0.444" in (reward.locator("svg").get_attribute("aria-label") or "")
    before = reward.locator("polyline.mean").get_attribute("points")
    page.fill("#smoothing", "0")
    assert reward.locator("polyline.mean").get_attribute("points") == reward.locator("polyline.raw").get_attribute(
        "points"
    )
    assert reward.locator("polyline.mean").get_attribute("points") != before
    page.select_option("#event-kind", "checkpoint")
    assert page.locator("#event-list tbody tr").all_inner_texts() == ["4\tcheckpoint\tstep-4 is whole"]


def test_ten_thousand_rollouts_open_and_scroll(page: Page, tmp_path: Path) -> None:
    big = make_run(tmp_path / "big", steps=50, per_step=200)
    with served(str(big)) as url:
        page.goto(url)
        page.wait_for_selector("#grid-body tr[data-place]")
        first = page.evaluate("performance.now()")
        status(page, "10000 of 10000 rollouts")
        whole = page.evaluate("performance.now()")
        print(f"first rows after {first:.0f} ms, all after {whole:.0f} ms")
        assert first < 10_000  # two seconds where nothing else runs; this must hold on a machine that is busy
        for part in (0.5, 1.0, 0.25):
            place = page.evaluate(
                """part => {
                  scroller.scrollTop = part * (scroller.scrollHeight - scroller.clientHeight);
                  return scroller.scrollTop / 28;
                }""",
                part,
            )
            page.wait_for_selector(f"#row-{min(9999, int(place) + 5)}")
            assert page.locator("#grid-body tr").count() < 80
        assert page.get_attribute("#grid", "aria-rowcount") == "10001"
        page.focus("#grid")
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        status(page, "rollout 10000 of 10000")
        assert page.locator(".token").count() > 50


def test_a_served_page_follows_a_run_that_is_being_written(page: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=5)
    with served(str(run)) as url:
        open_page(page, url)
        status(page, "10 of 10 rollouts")
        write_step(run, 2, [{"key": "new/0", "family": "new", "outcome": "late", "step": 2}])
        with (run / "metrics.jsonl").open("a") as file:
            file.write(metrics_line(3, loss=float("inf")))
        status(page, "11 of 11 rollouts")
        page.wait_for_selector("#event-list >> text=loss is inf")
        for order in ("ascending", "descending"):
            page.click("#grid-head th[data-column=reward] button")
            assert page.get_attribute("#grid-head th[data-column=reward]", "aria-sort") == order
            assert column(page, "Reward").index("–") == 10  # no reward comes last, whichever way
        page.select_option("select[name=outcome]", "late")
        status(page, "1 of 11")
        page.focus("#grid")
        page.keyboard.press("Enter")  # a trace may lack all that is not required
        status(page, "rollout 1 of 1: late, reward –")
        assert "No tool was called." in page.inner_text("article")


def test_a_row_that_is_not_held_says_how_to_open_it(page: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "wide", steps=6, per_step=100)
    open_page(page, file_of(tmp_path, run))
    page.check("input[name=held]")
    status(page, "500 of 600")
    page.uncheck("input[name=held]")
    missing = page.evaluate(
        "() => { const data = JSON.parse(document.getElementById('data').textContent).runs[0];"
        " return data.rows.find(row => !(`${row[0]}/${row[1]}` in data.rollouts)).slice(0, 2); }"
    )
    page.evaluate("name => { location.hash = `#/0/${name[0]}/${name[1]}`; }", missing)
    status(page, "rollout")
    assert "holds 500 of 600 rollouts in full" in page.inner_text("article")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Browser, run: Path, tmp_path: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    open_page(page, file_of(tmp_path, run) + "#/0/step-000001/1")
    page.wait_for_selector("#rollout:not([hidden])")
    ratios = page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement), name = (n) => style.getPropertyValue(n).trim();
          const light = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
          const mix = (a, b) => "#" + [1, 3, 5].map((at) => Math.round(0.6 * parseInt(a.slice(at, at + 2), 16)
            + 0.4 * parseInt(b.slice(at, at + 2), 16)).toString(16).padStart(2, "0")).join("");
          const ratio = (a, b) => {
            const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05);
          };
          const panel = name("--panel");
          return Object.fromEntries([
            ...["--back", "--panel", "--row"].map((back) => [`text on ${back}`, ratio(name("--text"), name(back))]),
            ...["--back", "--panel"].map((back) => [`soft on ${back}`, ratio(name("--soft"), name(back))]),
            ...["--first", "--second"].map((text) => [text, ratio(name(text), name("--back"))]),
            ...["--warm", "--good", "--bad"].map((shade) => [shade, ratio(name("--text"), mix(name(shade), panel))]),
          ]);
        }"""
    )
    context.close()
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


def test_a_port_in_use_is_one_line(run: Path) -> None:
    with served(str(run)) as url:
        command = [sys.executable, "-m", "callwright", "view", str(run), "--port", url.rsplit(":", 1)[1]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("callwright: cannot listen on 127.0.0.1 port ")
    assert done.stderr.count("\n") == 1
