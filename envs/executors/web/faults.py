"""Why a search gave nothing, when that was nobody's fault but ours or the service's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SearchFault(Exception):
    """No answer; one line without a secret. ``again``: another attempt may help, not before ``after_s`` seconds."""

    def __init__(self, message: str, *, again: bool = False, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.again = again
        self.after_s = after_s


class PageError(Exception):
    """No page, and why."""


@asynccontextmanager
async def until(deadline: float, wait: str) -> AsyncIterator[None]:
    """Bound a wait by the loop's time ``deadline``; past it, SearchFault names what was waited for."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise SearchFault(f"the search's time ran out while waiting for {wait}") from None
