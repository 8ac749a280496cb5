"""`callwright worker` as a real process, in an interpreter without torch: what the tests of workers share."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60.0
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
QUEUES = ("executors.queues=queues.db", "executors.journal=journal.db")


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """A running worker and what it said so far."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str, times: int = 1) -> re.Match[str]:
        """The match of ``pattern`` in the log, once it is there so often. Fails when the worker ends before."""
        closing = time.monotonic() + PATIENCE_S
        while True:
            over = self.process.poll() is not None or time.monotonic() > closing
            text = self.log.read_text()
            found = list(re.finditer(pattern, text))
            if len(found) >= times:
                return found[times - 1]
            assert not over, f"no {pattern!r} in: {text}"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def worker(folder: Path, *words: str, name: str = "worker") -> Iterator[WorkerRun]:
    """`callwright worker WORDS` in ``folder``, once it takes commands; killed in the end if it still runs."""
    code = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); from callwright.scripts.cli import main; main()"
    log = folder / f"{name}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "worker", *words, *QUEUES], cwd=folder, stderr=stderr, env={**os.environ}
        )
    run = WorkerRun(process, log)
    try:
        run.said("takes from")
        yield run
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
