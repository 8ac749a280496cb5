"""How soon does the viewer show a large run, and does its table scroll smoothly? A real Chromium, and a real run.

``callwright view`` reads the first ``--rollouts`` rollouts of the run, and the rest of the last one's file. ``open_s``
is from the start of the server to the first rows on the page, ``again_s`` the same with the server running,
``frame_ms`` the 99th percentile of the time between two frames while the table is scrolled by a screen each, and
``html_mb`` the size of the file that ``--html`` writes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import Measured, Row, Spread, progress, run
from callwright.training.viewer.export import export

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HEADLINE = ("open_s", "again_s", "frame_ms", "html_mb")
SCREENS = 60
FRAMES = """async screens => {
    const grid = document.getElementById("scroller"), times = [];
    const frame = () => new Promise(requestAnimationFrame);
    let last = await frame();
    for (let n = 0; n < screens; n++) {
        grid.scrollBy(0, grid.clientHeight);
        const now = await frame();
        times.push(now - last);
        last = now;
    }
    if (grid.scrollTop < screens * grid.clientHeight * 0.9) throw new Error("the table did not scroll");
    return times.sort((a, b) => a - b)[Math.floor(screens * 0.99)];
}"""


def main(argv: Sequence[str] | None = None) -> int:
    return run("viewer", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, default=Path("runs/quickstart"), help="a run with that many rollouts")
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)


def measure(options: argparse.Namespace) -> Measured:
    from playwright.sync_api import sync_playwright

    # Chromium's own sandbox does not start for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        part, rollouts = _part_of(options.run, options.rollouts, Path(folder) / "run")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        repeats = []
        for repeat in range(options.repeats):
            progress(f"viewer: repeat {repeat + 1} of {options.repeats}")
            repeats.append(_once(browser, part))
        browser.close()
        size = len(export([part]).encode()) / 1e6
    spreads = dict(zip(HEADLINE, (Spread.of(values) for values in zip(*repeats, strict=True)), strict=False))
    rows: list[Row] = [
        spread.row(f"{rollouts} rollouts", name, name.split("_")[-1]) for name, spread in spreads.items()
    ]
    headline = {name: spread.median for name, spread in spreads.items()}
    return Measured(rows, {**headline, "html_mb": size}, ())


def _part_of(source: Path, rollouts: int, target: Path) -> tuple[Path, int]:
    """A run with the first files of another one's traces, until there are that many rollouts; how many there are."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("traces", "checkpoints"))
    (target / "traces").mkdir()
    count = 0
    for file in sorted((source / "traces").glob("step-*.jsonl")):
        if count < rollouts:
            shutil.copy(file, target / "traces")
            count += len(file.read_text(encoding="utf-8").splitlines())
    if count < rollouts:
        raise SystemExit(f"{source} has {count} rollouts of its training, not {rollouts}")
    return target, count


def _once(browser: Browser, folder: Path) -> tuple[float, float, float]:
    begin = time.perf_counter()
    with _served(folder) as url:
        page = _opened(browser, url)
        first = time.perf_counter() - begin
        page.close()
        begin = time.perf_counter()
        page = _opened(browser, url)
        again = time.perf_counter() - begin
        page.wait_for_function("() => !document.getElementById('status').textContent.startsWith('0 of')")
        frames = float(page.evaluate(FRAMES, SCREENS))
        page.close()
    return first, again, frames


def _opened(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(url)
    page.wait_for_selector("#grid-body tr[data-place]")
    return page


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "callwright", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"at (http://127\.0\.0\.1:\d+)", process.stderr.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    raise SystemExit(main())
