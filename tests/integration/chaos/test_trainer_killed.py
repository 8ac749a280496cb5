"""SIGKILL between two writes of a real run, whichever they are: the resumed run is the run that nobody disturbed."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from conftest import Quiet
from lives import living
from run_checks import check_run, learned
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS
from writes import AtWrite

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = 8
DOUBLED = "grpo.faults={duplicate: 0.3}"  # so that there is a log of the reward queue to write, too


@pytest.mark.parametrize("nth", range(KILLS))
def test_killed_between_two_writes_and_resumed_it_is_the_undisturbed_run(
    nth: int, quiet: Quiet, tmp_path: Path
) -> None:
    """The run's writes are cut into as many parts as there are kills; one falls somewhere in each."""
    moment = random.randrange(nth * quiet.writes // KILLS, (nth + 1) * quiet.writes // KILLS) + 1
    print(f"killed before write {moment} of {quiet.writes}")
    folder = tmp_path / "life"
    folder.mkdir()
    words = (*WORDS, DOUBLED)
    with living(folder, *words, fate=AtWrite(tmp_path / "tally", moment)) as life:
        assert life.ended() == -signal.SIGKILL
    run = folder / "runs" / "quickstart"
    begun = (run / "config.yaml").is_file()
    with living(folder, *(("train", str(run), "--resume") if begun else words), name="resumed") as life:
        life.well()
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    assert learned(run) == quiet.learned
    assert not [path.name for path in run.rglob("*") if path.name.startswith(".") or path.suffix == ".partial"]
