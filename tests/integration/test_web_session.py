"""A run's web tool is the one that its config names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from web_servers import ANSWERS, FOUND, says, search, serving

from callwright.envs.executors.corpus import Corpus
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply
from callwright.training.config import load_config
from callwright.training.session import Session, open_session

pytestmark = pytest.mark.integration


def asked(call: ToolCall, *web: str) -> Reply:
    words = ["tools=[web]", "executors.code.sandbox=none", *(f"executors.web.{word}" for word in web)]
    with open_session(load_config("quickstart", words)) as session:
        return session.loop.run(one_call(session, call))


async def one_call(session: Session, call: ToolCall) -> Reply:
    with session.episode() as call_tool:
        return await call_tool(call)


async def test_a_service() -> None:
    async with serving(says(ANSWERS["searxng"])) as server:
        reply = await asyncio.to_thread(asked, search(), "backend=searxng", f"url={server.url}")
    assert json.loads(reply.record) == {"type": "web", "status": "ok", "results": FOUND}


def test_a_collection_in_a_file_which_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    Corpus.build([("Oslo", "The capital of Norway.")], path).close()
    before = path.read_bytes()
    reply = asked(search("oslo"), f"corpus={path}")
    assert json.loads(reply.record)["results"] == [{"title": "Oslo", "content": "The capital of Norway."}]
    assert path.read_bytes() == before
