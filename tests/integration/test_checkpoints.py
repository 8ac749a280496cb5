"""Checkpoints are whole or absent, whenever the process that writes them is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callwright.training.checkpoints import MARKER, complete, latest, prune, publish

pytestmark = pytest.mark.integration

# Publishes, publishes the same step again, publishes the next one, prunes; SIGKILL before the N-th file operation.
WRITER = """
import os, signal, sys
from pathlib import Path
from callwright.training.checkpoints import prune, publish

folder, moment, count = Path(sys.argv[1]), int(sys.argv[2]), 0

def hook(event, args):
    global count
    if event == "open" or event.startswith(("os.", "shutil.")):
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

def write(step, text):
    with publish(folder, step) as staging:
        (staging / "inner").mkdir()
        (staging / "model.bin").write_text(text * 2000)
        (staging / "inner" / "state.bin").write_text(text * 3000)

sys.addaudithook(hook)
write(2, "b")
write(2, "c")
write(3, "d")
prune(folder, 1)
print(count, flush=True)
while moment < 0:
    write(4, "e")
    write(5, "f")
    prune(folder, 1)
"""


def write(folder: Path, step: int, text: str) -> None:
    with publish(folder, step) as staging:
        (staging / "inner").mkdir()
        (staging / "model.bin").write_text(text * 2000)
        (staging / "inner" / "state.bin").write_text(text * 3000)


def writer(folder: Path, moment: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(moment)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def assert_whole(folder: Path) -> None:
    """Something complete is there, and what is called complete is."""
    found = complete(folder)
    assert found
    assert latest(folder) == found[-1]
    for _, path in found:
        text = (path / "model.bin").read_text()
        assert len(text) == 2000
        assert (path / "inner" / "state.bin").read_text() == text[0] * 3000


def test_a_kill_before_any_file_operation_leaves_whole_checkpoints(tmp_path: Path) -> None:
    write(tmp_path / "count", 1, "a")
    said, _ = writer(tmp_path / "count", 0).communicate(timeout=60)
    total = int(said)
    assert total > 30
    moments = range(1, total + 1)
    # Every moment in the first checkpoint, and a spread of the others; four processes at a time.
    chosen = sorted({*moments[: total // 3], *moments[total // 3 :: 2]})
    for start in range(0, len(chosen), 4):
        running = []
        for moment in chosen[start : start + 4]:
            folder = tmp_path / str(moment)
            write(folder, 1, "a")
            running.append((folder, writer(folder, moment)))
        for folder, process in running:
            assert process.wait(timeout=60) == -signal.SIGKILL
            assert process.stdout is not None
            process.stdout.close()
            assert_whole(folder)
            write(folder, 9, "z")  # the next run goes on here, and takes away what the dead one left
            assert_whole(folder)
            assert latest(folder) == (9, folder / "step-9")
            assert not list(folder.glob(".*"))


def test_a_kill_at_a_random_moment(tmp_path: Path) -> None:
    rng = random.Random(0)
    for attempt in range(6):
        folder = tmp_path / str(attempt)
        write(folder, 1, "a")
        process = writer(folder, -1)
        assert process.stdout is not None
        process.stdout.readline()  # it is in its loop now
        try:
            process.wait(timeout=rng.uniform(0, 0.05))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL
        process.stdout.close()
        assert_whole(folder)


def test_only_a_marked_folder_counts(tmp_path: Path) -> None:
    assert complete(tmp_path / "nowhere") == []
    assert latest(tmp_path) is None
    write(tmp_path, 2, "b")
    write(tmp_path, 10, "c")
    (tmp_path / "step-11").mkdir()
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-x" / MARKER).touch()
    (tmp_path / "step-12").write_text("")
    assert complete(tmp_path) == [(2, tmp_path / "step-2"), (10, tmp_path / "step-10")]
    write(tmp_path, 11, "d")
    assert latest(tmp_path) == (11, tmp_path / "step-11")


def test_a_failure_while_writing_publishes_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, "a")

    def fail() -> None:
        with publish(tmp_path, 2) as staging:
            (staging / "model.bin").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert os.listdir(tmp_path) == ["step-1"]
    assert_whole(tmp_path)


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        write(tmp_path, step, "a")
    (tmp_path / "step-0").mkdir()
    prune(tmp_path, 0)
    assert [step for step, _ in complete(tmp_path)] == [1, 2, 3, 10]
    prune(tmp_path, 2)
    assert [step for step, _ in complete(tmp_path)] == [3, 10]
    prune(tmp_path, 5)
    assert [step for step, _ in complete(tmp_path)] == [3, 10]
    assert (tmp_path / "step-0").is_dir()
