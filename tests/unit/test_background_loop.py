"""The loop that runs beside a caller: an interrupt at any moment ends what it was asked to run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from callwright.serving.background_loop import BackgroundLoop

pytestmark = pytest.mark.unit


async def seven() -> int:
    return 7


async def wrong() -> int:
    raise ValueError("it broke")


def test_results_and_errors_come_back() -> None:
    loop = BackgroundLoop()
    try:
        assert loop.run(seven()) == 7
        with pytest.raises(ValueError, match="it broke"):
            loop.run(wrong())
    finally:
        loop.close()


def test_an_interrupt_that_comes_at_once_still_cancels() -> None:
    loop = BackgroundLoop()
    try:
        for _ in range(200):
            cancelled = threading.Event()

            async def interrupting(cancelled: threading.Event = cancelled) -> None:
                os.kill(os.getpid(), signal.SIGINT)
                try:
                    await asyncio.sleep(300)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

            with pytest.raises(KeyboardInterrupt):
                loop.run(interrupting())
            assert cancelled.wait(30)
    finally:
        loop.close()
