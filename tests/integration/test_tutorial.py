"""docs/tutorial.md, executed: its blocks are the files and the commands of this test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callwright.envs.executors.sandbox import Limits, SandboxError, SandboxPool

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2700)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PATIENCE_S = 2400


def blocks(kind: str) -> list[str]:
    """The page's code blocks of one language, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's files, and the commands that its reader has."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("callwright", "-m callwright"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    (tmp_path / "weigh.py").write_text("\n\n".join(blocks("python")))
    (tmp_path / "tutorial.yaml").write_text("".join(blocks("yaml")))
    return tmp_path


def run(folder: Path, commands: str) -> str:
    """Standard output of a shell block."""
    path = f"{folder / 'programs'}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, log = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the commands too, not their shell alone
            raise
    assert process.returncode == 0, f"{commands}\n{said[-2000:]}\n{log[-2000:]}"
    return said


async def test_the_page_works_as_written(folder: Path) -> None:
    try:
        pool = SandboxPool(1, Limits())  # a run grades unit tests there, if any
        await pool.start()
        await pool.close()
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    checked, told, trained, looked = (run(folder, block) for block in blocks("sh"))
    assert checked == "parcels: 20 rows, 0 fail\n"
    assert "<scale>" in told
    assert "root ::=" in told
    summary = json.loads((folder / "runs" / "tutorial" / "summary.json").read_text())
    assert summary["steps"] == 12
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    assert after > before + 0.1
    assert summary["closed_book"]["after"] < 0.2
    assert "parcels" in trained
    assert "parcels" in looked
    assert "[scale-result]" in looked
    board = [json.loads(line) for line in (folder / "runs" / "leaderboard.jsonl").read_text().splitlines()]
    assert [(line["benchmark"], line["samples"]) for line in board] == [("parcels", 4)]
    assert (folder / "tutorial.html").stat().st_size > 100_000
