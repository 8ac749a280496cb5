"""Where documents come from, one around the other: a service, its results with their pages, what the cache kept.

Invariants: a source answers within its deadline or raises SearchFault; of cached searches that are alike one asks at a
time, and the others are given its answer.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol
from weakref import WeakValueDictionary

from callwright.envs.executors.corpus import CONTENT_CHARS, Document
from callwright.envs.executors.web.cache import AnswerCache
from callwright.envs.executors.web.faults import PageError, SearchFault, until

log = logging.getLogger(__name__)

PAGES_SHARE = 0.8  # of the time that a search left over: the rest brings the answer home

Documents = tuple[Document, ...]


class Source(Protocol):
    """Anything that can be searched between ``open`` and ``close``."""

    async def open(self) -> None:
        """Raises UserError."""
        ...

    async def search(self, query: str, k: int, deadline: float) -> Documents:
        """The best ``k`` by the loop's time ``deadline``. Raises SearchFault."""
        ...

    async def close(self) -> None:
        """Safe to call twice, and after a failed ``open``."""
        ...


class Fetcher(Protocol):
    """What gives a page's text."""

    async def text(self, url: str, seconds: float) -> str:
        """Raises PageError."""
        ...

    def close(self) -> None:
        """Safe to call twice."""
        ...


class WithPages:
    """The first ``count`` results have their pages' texts as content; the service's snippet where there is no page."""

    def __init__(self, source: Source, fetcher: Fetcher, count: int) -> None:
        self._source = source
        self._fetcher = fetcher
        self._count = count

    async def open(self) -> None:
        await self._source.open()

    async def search(self, query: str, k: int, deadline: float) -> Documents:
        found = await self._source.search(query, k, deadline)
        seconds = (deadline - asyncio.get_running_loop().time()) * PAGES_SHARE
        first = await asyncio.gather(*(self._page_of(document, seconds) for document in found[: self._count]))
        return (*first, *found[self._count :])

    async def _page_of(self, document: Document, seconds: float) -> Document:
        if not document.url:
            return document
        try:
            text = await self._fetcher.text(document.url, seconds)
        except PageError as error:
            log.info("no page %s: %s", document.url, error)
            return document
        return replace(document, content=text[:CONTENT_CHARS]) if text else document

    async def close(self) -> None:
        self._fetcher.close()
        await self._source.close()


class Cached:
    """A source whose answers are kept."""

    def __init__(self, source: Source, cache: AnswerCache) -> None:
        self._source = source
        self._cache = cache
        self._alike: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        await self._cache.open()
        await self._source.open()

    async def search(self, query: str, k: int, deadline: float) -> Documents:
        lock = self._alike.setdefault((query, k), asyncio.Lock())
        async with until(deadline, "the same search of another call"):
            await lock.acquire()
        try:
            kept = await self._cache.get(query, k, deadline)
            if kept is None:
                kept = await self._cache.put(query, k, await self._source.search(query, k, deadline), deadline)
            return kept
        finally:
            lock.release()

    async def close(self) -> None:
        await self._source.close()
        await self._cache.close()


class Replay:
    """What was kept, and nothing else."""

    def __init__(self, cache: AnswerCache) -> None:
        self._cache = cache

    async def open(self) -> None:
        await self._cache.open()

    async def search(self, query: str, k: int, deadline: float) -> Documents:
        kept = await self._cache.get(query, k, deadline)
        if kept is None:
            raise SearchFault(f"replay: the cache {self._cache.path} holds no answer to q={query[:200]!r} k={k}")
        return kept

    async def close(self) -> None:
        await self._cache.close()
