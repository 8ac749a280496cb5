"""Progress on standard error: a live bar on a terminal, plain lines elsewhere. Results belong on standard output."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

Value = float | int | str


def log(message: str) -> None:
    """One line on standard error, above a live bar if one is drawn."""
    if Progress.active is not None and Progress.active._live is not None:
        Progress.active._live.console.print(message, markup=False, highlight=False)
    else:
        print(message, file=sys.stderr, flush=True)


class Progress:
    """``with Progress("grpo", total=100) as bar: bar.step(reward=0.3)``.

    Off a terminal it prints the first step, the last one, and one line every ``every_s`` seconds between them, so that
    a log file stays readable.
    """

    active: Progress | None = None

    def __init__(self, name: str, total: int | None = None, *, every_s: float = 10.0) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._every_s = every_s
        self._started = time.monotonic()
        self._printed_at = float("-inf")
        self._last_line = ""
        self._unprinted = False
        self._outer: Progress | None = None
        self._live: RichProgress | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._outer, Progress.active = Progress.active, self
        console = Console(stderr=True)
        # Only the outermost bar is live: rich draws one live display at a time.
        if console.is_terminal and (self._outer is None or self._outer._live is None):
            self._live = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[values]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._live.start()
            self._live.add_task(self.name, total=self.total, values="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        Progress.active = self._outer
        if self._live is not None:
            self._live.stop()
        elif self._unprinted:
            log(self._last_line)

    def step(self, advance: int = 1, **values: Value) -> None:
        """Move on by ``advance`` and show the values beside the bar."""
        self.done += advance
        shown = "  ".join(f"{key} {_short(value)}" for key, value in values.items())
        if self._live is not None:
            self._live.update(self._live.task_ids[0], completed=self.done, values=shown)
            return
        now = time.monotonic()
        of = f"/{self.total}" if self.total is not None else ""
        self._last_line = f"{self.name} {self.done}{of}  {now - self._started:.0f}s  {shown}".rstrip()
        self._unprinted = now - self._printed_at < self._every_s
        if not self._unprinted:
            log(self._last_line)
            self._printed_at = now


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
