"""The two pictures of viewer.md, taken in a real browser from two real runs.

python docs/viewer_screenshots.py runs/A runs/B     # needs playwright, and chromium on the PATH
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from callwright.training.viewer.export import export

DOCS = Path(__file__).parent


def main(first: Path, second: Path) -> None:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        compared = opened(browser, Path(folder) / "two.html", [first, second], "light")
        compared.screenshot(path=DOCS / "viewer.png")
        page = opened(browser, Path(folder) / "one.html", [first], "dark")
        page.fill("input[name=stepFrom]", "0")  # early in training, when what is right is still unlikely
        page.fill("input[name=stepTo]", "3")
        page.check("input[name=held]")
        for _ in range(2):
            page.click("#grid-head th[data-column=advantage] button")
        page.focus("#grid")
        page.keyboard.press("Enter")
        page.wait_for_selector("#rollout:not([hidden])")
        page.locator(".sampled .token").first.hover()
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=DOCS / "viewer-rollout.png")
        browser.close()


def opened(browser: Browser, file: Path, runs: list[Path], scheme: str) -> Page:
    file.write_text(export(runs), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1100, "height": 860}, color_scheme=scheme)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    return page


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
