"""The ``web`` tool over a local document collection. Searches run in one thread of its own, never on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from callwright.envs.executors.corpus import Corpus, Document
from callwright.envs.executors.executor import Record, record_of
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus


class CorpusExecutor:
    """Answers ``{"type":"web","status":"ok","results":[{"title","content"[,"url"]}]}``; no hit is ok and empty."""

    name = "web/corpus"

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._thread: ThreadPoolExecutor | None = None

    async def start(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-corpus")

    async def run(self, call: ToolCall) -> Record:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._corpus.search, call.arguments["q"], call.arguments["k"])
        return found_record(call, found)

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None
            self._corpus.close()


def found_record(call: ToolCall, found: Sequence[Document]) -> Record:
    """The record of a search, wherever it searched."""
    if not found:
        return record_of(call, CallStatus.OK, results=[], message="no results")
    return record_of(call, CallStatus.OK, results=[_result(document) for document in found])


def _result(document: Document) -> dict[str, Any]:
    result = {"title": document.title, "content": document.content}
    return {**result, "url": document.url} if document.url else result
