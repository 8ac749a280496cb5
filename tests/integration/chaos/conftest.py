"""What the chaos tests share: where their helpers lie, and one run that nothing disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lives import living
from run_checks import check_run, learned
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS
from writes import AtWrite, count


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Quiet:
    """The run of ``WORDS`` that nothing befell."""
    return Quiet(tmp_path_factory.mktemp("quiet"))


class Quiet:
    """What was ``learned`` in the undisturbed run, and how many ``writes`` it made."""

    def __init__(self, folder: Path) -> None:
        tally = folder / "tally"
        with living(folder, *WORDS, fate=AtWrite(tally)) as life:
            life.well()
        run = folder / "runs" / "quickstart"
        traces = check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
        assert {trace["outcome"] for trace in traces} <= {"scored", "policy_fault"}
        self.learned: dict[str, Any] = learned(run)
        self.writes = count(tally)
