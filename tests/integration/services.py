"""Executors for a test module: running, or the test skips with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.service import Executors


@asynccontextmanager
async def running(service: Executors) -> AsyncIterator[Executors]:
    """Started, and closed at the end."""
    try:
        await service.start()
    except ExecutorUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")
    try:
        yield service
    finally:
        await service.close()
