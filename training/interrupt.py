"""Ctrl-C once: finish the step, save, stop. Twice: stop at once (the last checkpoint stands).

What has processes of its own to end takes SIGTERM for a Ctrl-C, so that it ends them too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from callwright.serving.progress import log


@dataclass(slots=True)
class Interrupt:
    """Whether the user has asked to stop."""

    requested: bool = False


@contextmanager
def graceful_interrupt() -> Iterator[Interrupt]:
    """While open, the first SIGINT only sets ``requested``. Off the main thread, where Python allows no handler, SIGINT
    stays as it is."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = signal.getsignal(signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, previous)
        log("interrupted: finishing this step and saving it; once more stops at once")

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """While open, SIGTERM raises KeyboardInterrupt in the main thread. Off the main thread it stays as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
