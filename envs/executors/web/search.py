"""The ``web`` tool over a search service.

Invariant: every call ends within ``timeout_s``, as a record like the corpus's. What the service did wrong is an infra
fault that names it; what the model did wrong (a query that no service takes) is an error for it to read.
"""

from __future__ import annotations

import asyncio
import logging
import re

from callwright.envs.executors.executor import Record, record_of
from callwright.envs.executors.web.backends import Backend
from callwright.envs.executors.web.faults import SearchFault
from callwright.envs.executors.web.local import found_record
from callwright.envs.executors.web.sources import Source
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

log = logging.getLogger(__name__)

# A service may refuse a query without words or with control characters. That would be a fault of ours by its status,
# and a way for the model out of any rollout: such a query finds nothing, as in the corpus, and is not sent.
_WORD = re.compile(r"\w")
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


class SearchExecutor:
    """Answers as the corpus does."""

    def __init__(self, backend: Backend, source: Source, *, timeout_s: float) -> None:
        self.name = f"web/{backend.name}"
        self._backend = backend
        self._source = source
        self._timeout_s = timeout_s

    async def start(self) -> None:
        """Raises UserError where the cache's file is none. The service is first asked by the first call."""
        await self._source.open()

    async def run(self, call: ToolCall) -> Record:
        query, k = _SPACE.sub(" ", call.arguments["q"]).strip(), call.arguments["k"]
        if not _WORD.search(query):
            return found_record(call, ())
        wrong = self._backend.too_long(query)
        if wrong:
            return record_of(call, CallStatus.ERROR, message=wrong)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            return found_record(call, await self._source.search(query, k, deadline))
        except SearchFault as fault:
            log.warning("%s: %s", self.name, fault)
            return record_of(call, CallStatus.INFRA_FAULT, executor=self.name, message=f"{self.name}: {fault}")

    async def close(self) -> None:
        await self._source.close()
