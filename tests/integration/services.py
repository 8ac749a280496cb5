"""Executors and sandboxes for a test module: running, or the test skips with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.sandbox import Limits, SandboxError, SandboxPool
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


@asynccontextmanager
async def sandboxes(workers: int, limits: Limits, mode: str) -> AsyncIterator[SandboxPool]:
    """A pool that runs in just this mode."""
    made = SandboxPool(workers, limits, nested=mode == "nested")
    try:
        await made.start()
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    try:
        if made.mode != mode:
            pytest.skip("nested namespaces are not permitted here")
        yield made
    finally:
        await made.close()
