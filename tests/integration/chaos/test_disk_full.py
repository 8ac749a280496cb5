"""A disk that is full, at any write of a run, under the queues, under the journal: one line, and it can go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conftest import Quiet
from lives import living
from run_checks import check_run, learned
from small_disk import small_disk
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS
from writes import BALLAST, AtWrite, fill

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

FILLS = 6
FULL = "No space left on device"


@pytest.mark.parametrize("nth", range(FILLS))
def test_a_full_disk_ends_the_run_with_one_line_and_with_room_it_goes_on(
    nth: int, quiet: Quiet, tmp_path: Path
) -> None:
    moment = random.randrange(nth * quiet.writes // FILLS, (nth + 1) * quiet.writes // FILLS) + 1
    print(f"full before write {moment} of {quiet.writes}")
    with small_disk(tmp_path / "disk", "96m") as disk:
        with living(disk, *WORDS, fate=AtWrite(tmp_path / "tally", moment, "fill")) as life:
            code = life.ended()
        assert "Traceback" not in life.text
        run = disk / "runs" / "quickstart"
        if code != 0:  # else the next thing it did was to remove an old checkpoint, which made room
            assert code == 1, life.text[-2000:]
            last = life.text.splitlines()[-1]
            assert last.startswith("callwright: ")
            assert FULL in last
            (disk / BALLAST).unlink()
            begun = (run / "config.yaml").is_file()
            assert ("--resume" in last) == begun
            with living(disk, *(("train", str(run), "--resume") if begun else WORDS), name="resumed") as life:
                life.well()
        check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
        assert learned(run) == quiet.learned


def test_a_full_disk_under_the_queues_stops_the_run_and_teaches_nothing(quiet: Quiet, tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    with small_disk(tmp_path / "disk", "8m") as disk:  # SQLite's log alone may take half of it
        words = (*WORDS, "executors.broker=sqlite", f"executors.queues={disk / 'queues.db'}")
        with living(folder, *words) as life:
            life.until((run / "before.json").is_file, "the evaluation before")
            fill(disk / BALLAST)
            code = life.ended()
        last = life.text.splitlines()[-1]
        assert (code, "Traceback" in life.text) == (1, False), life.text[-2000:]
        assert "through no fault of the policy" in last
        assert "full" in last
        (disk / BALLAST).unlink()
        with living(folder, "train", str(run), "--resume", name="resumed") as life:
            life.well()
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    assert learned(run) == quiet.learned


def test_a_full_disk_under_the_journal_costs_nothing_but_a_line(quiet: Quiet, tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    with small_disk(tmp_path / "disk", "1m") as disk:
        words = (*WORDS, "executors.broker=sqlite", f"executors.journal={disk / 'journal.db'}")
        with living(folder, *words) as life:
            life.until((run / "before.json").is_file, "the evaluation before")
            fill(disk / BALLAST)
            life.well()
    assert "the journal of results failed" in life.text
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    assert learned(run) == quiet.learned
