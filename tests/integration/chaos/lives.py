"""Processes of the command line with a fate: each is one ``callwright VERB ...`` in a folder, forked from a server that
has the imports behind it, so that a test can afford many of them.

What is forked has its own process id, files, event loop and exit code, and is killed like any other process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

PATIENCE_S = 600.0  # a busy machine takes minutes for what a quiet one does in seconds
CRASHED = 70  # the exit code of a traceback, which a user should never see

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["callwright.training.run", "callwright.scripts.cli", "matplotlib.pyplot"])


class Fate(Protocol):
    """What befalls a process. It is sent to the process, and armed there before the command begins."""

    def arm(self) -> None: ...


class Life:
    """One process. ``log`` receives what it prints; ``environment`` is added to ours."""

    def __init__(
        self, folder: Path, words: Sequence[str], log: Path, fate: Fate | None, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        log.touch()
        arguments = (list(words), folder, log, fate, dict(environment))
        self._process: ForkServerProcess = _CONTEXT.Process(target=_live, args=arguments)
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def ended(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        self._process.join(PATIENCE_S)
        code = self._process.exitcode
        assert code is not None, f"it did not end within {PATIENCE_S:g} s:\n{self.text[-2000:]}"
        return code

    def well(self) -> None:
        """It ended with 0."""
        code = self.ended()
        assert code == 0, f"exit code {code}:\n{self.text[-3000:]}"

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something that it does while it runs."""
        closing = time.monotonic() + PATIENCE_S
        while not happened():
            over = not self.running or time.monotonic() > closing
            assert not over, f"{what} did not happen:\n{self.text[-3000:]}"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGKILL) -> None:
        pid = self._process.pid
        if pid is not None and self.running:
            os.kill(pid, number)


@contextmanager
def living(
    folder: Path,
    *words: str,
    name: str = "train",
    fate: Fate | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Life]:
    """A process in ``folder``, killed at the end of the block if it still runs. Its log lies beside the folder."""
    life = Life(folder, words, folder.with_name(f"{folder.name}.{name}.log"), fate, environment)
    try:
        yield life
    finally:
        life.stop()
        life.ended()


def _live(words: list[str], folder: Path, log: Path, fate: Fate | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    said = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = CRASHED
    try:
        from callwright.scripts.cli import run

        if fate is not None:
            fate.arm()
        code = run(words)
    except BaseException:  # the boundary: whatever it is, the log has it and the exit code says so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
