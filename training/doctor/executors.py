"""The parts between a policy and its tools: the sandbox, the broker, and one call through each executor.

Invariant: nothing here takes what belongs to a run that shares the broker. Executors of our own are tried over a broker
in memory; the shared one sees one message, in a lane that nobody else reads, and calls of the tools whose workers are
other processes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.corpus import Document
from callwright.envs.executors.presence import presence_queue
from callwright.envs.executors.sandbox.__main__ import report
from callwright.envs.executors.service import Executors
from callwright.envs.executors.tool_kind import Documents
from callwright.serving.errors import RunError
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, command_queue
from callwright.serving.queues.reply import CallStatus
from callwright.training.config import Config
from callwright.training.doctor.check import Status, Verdict
from callwright.training.executor_settings import executor_settings, tools_of

WORKER_WAIT_S = 5.0  # for a worker that is another process
_TOOLS = {tool.name: tool for tool in DEFAULT_TOOLS}


def private(config: Config, tools: Sequence[str]) -> Config:
    """The config with a broker in memory, unless the workers of one of ``tools`` are other processes."""
    if any(tool in config.executors.external for tool in tools):
        return config
    alone = config.executors.model_copy(update={"broker": "memory", "external": ()})
    return config.model_copy(update={"executors": alone})


def check_sandbox(config: Config) -> Verdict:
    """The sandbox's own look at its walls. Raises SandboxError."""
    code = config.executors.code
    if "code" in config.executors.external:
        return Verdict(Status.SKIPPED, "the workers of code are other processes")
    if code.backend != "local":
        return Verdict(Status.SKIPPED, f"commands go to {code.url}, which isolates them or does not")
    if code.sandbox == "none":
        return Verdict(Status.WARNING, "executors.code.sandbox=none: what a model writes runs bare on this machine")
    holds, *_, groups = asyncio.run(report())
    return Verdict(Status.OK, f"{holds.removeprefix('sandbox: ')}; {groups}")


def check_broker(config: Config) -> Verdict:
    """One message there and back. Raises BrokerError, UserError."""
    return asyncio.run(_round_trip(config))


async def _round_trip(config: Config) -> Verdict:
    tools = tools_of(config)
    settings = executor_settings(config, tools)
    broker = open_broker(settings)
    lane = body = f"doctor-{uuid.uuid4().hex}"
    try:
        await broker.start(
            *map(command_queue, tools), *(presence_queue(tool) for tool in settings.external), REWARD_QUEUE
        )
        await broker.send(REWARD_QUEUE, body.encode(), message_id=lane, lane=lane)
        lease = await broker.receive(REWARD_QUEUE, timeout_s=10.0, lane=lane)
        if lease is None:
            raise RunError(f"a message sent to {REWARD_QUEUE} did not come back in 10 s")
        await broker.complete(lease)
        if lease.message.body != body.encode():
            raise RunError(f"{REWARD_QUEUE} gave another body than was sent")
    finally:
        await broker.close()
    return Verdict(Status.OK, f"{settings.broker}: one message there and back")


def check_call(config: Config, tool: str, documents: Documents | None) -> Verdict:
    """The tool's own example through dispatcher, queue, worker and executor. Raises RunError, UserError."""
    return asyncio.run(_call(config, tool, documents))


async def _call(config: Config, tool: str, documents: Documents | None) -> Verdict:
    settings = executor_settings(private(config, (tool,)), (tool,))
    settings = settings.model_copy(update={"worker_wait_s": min(settings.worker_wait_s, WORKER_WAIT_S)})
    call = ToolCall(tool, _example(tool, documents))
    async with Executors(settings, documents=documents) as executors:
        who = ", ".join(health.executor for health in executors.health()) or "another process"
        reply = await executors.dispatcher.call(call, timeout_s=settings.deadline_s)
    if reply.status is not CallStatus.OK:
        raise RunError(f"{who}: {reply.status}: {reply.cause}")
    text = " ".join(reply.record.decode(errors="replace").split())
    return Verdict(Status.OK, f"{who}: {text[:60]}{'...' if len(text) > 60 else ''}")


def _example(tool: str, documents: Documents | None) -> Mapping[str, Any]:
    """The declaration's own example; where documents are searched, a search that has to find the first of them."""
    example = _TOOLS[tool].example or {}
    first = next(iter(documents or ()), None)
    if first is None:
        return example
    return {**example, "q": first.title if isinstance(first, Document) else first[0]}
