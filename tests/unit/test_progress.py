"""Progress off a terminal: few plain lines on standard error, the first and the last among them."""

from __future__ import annotations

import pytest

from callwright.serving.progress import Progress, log


def test_plain_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("grpo", total=3, every_s=3600) as bar:
        bar.step(reward=0.12345)
        log("between")
        bar.step(reward=0.5)
        bar.step(reward=1.0, note="x")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["grpo 1/3  0s  reward 0.1235", "between", "grpo 3/3  0s  reward 1  note x"]


def test_an_error_leaves_the_last_line_and_nesting_unwinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), Progress("outer"), Progress("inner") as bar:  # noqa: PT012
        bar.step(2)
        bar.step(2)
        raise RuntimeError
    assert capsys.readouterr().err.splitlines() == ["inner 2  0s", "inner 4  0s"]
    assert Progress.active is None
