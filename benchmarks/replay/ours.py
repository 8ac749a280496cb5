"""Our side: the rollout function over the engine, the dispatcher, the memory broker and one worker with a slow
executor."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from benchmarks.replay.forcing import ForcedEngine
from benchmarks.replay.model import CONTEXT, Shared
from benchmarks.replay.scripts import FIELDS, Batch, Latency, Script
from callwright.envs.budgets import Budgets
from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import Record, record_of
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import completion
from callwright.serving.engines.engine import Request, Sampling
from callwright.serving.protocol import WEB, ToolCall
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher
from callwright.serving.queues.memory import MemoryBroker

BUDGETS = Budgets(turn_tokens=128, policy_tokens=900, context=CONTEXT, calls=4)
CALL_TIMEOUT_S = 60.0
RAW_TOKENS = 96
RAW_TIMEOUT_S = 120.0


class _Collection:
    """An executor that sleeps for the call's latency and answers."""

    name = "collection"

    def __init__(self) -> None:
        self.latency: Latency = lambda query: 0.0

    async def start(self) -> None:
        """Nothing to warm up."""

    async def run(self, call: ToolCall) -> Record:
        await asyncio.sleep(self.latency(str(call.arguments["q"])))
        return record_of(call, CallStatus.OK, **FIELDS)

    async def close(self) -> None:
        """Nothing is held."""


class Ours:
    """Our rollouts over the scripts, ``in_flight`` at once, on the caller's event loop."""

    def __init__(self, shared: Shared, scripts: Sequence[Script], *, in_flight: int) -> None:
        self._scripts = scripts
        self._in_flight = in_flight
        self.engine = ForcedEngine(shared.model, scripts, rows=in_flight, context=CONTEXT)
        self._policy = Policy(self.engine, shared.codec, (WEB,), system_prompt=False)
        self._executor = _Collection()
        self._broker = MemoryBroker()
        self._dispatcher = Dispatcher(self._broker, (WEB,), lanes=in_flight)
        worker = CommandWorker(self._broker, self._executor, WEB, concurrency=in_flight)
        self._worker = asyncio.get_running_loop().create_task(worker.run())

    async def run(self, latency: Latency) -> Batch:
        """One batch. The worker and the engine stay up between batches, as in training; cached keys and values do
        not."""
        self._executor.latency = latency
        self.engine.restart()
        places = asyncio.Semaphore(self._in_flight)
        prefill = self.engine.stats.prefill_seconds
        started = time.perf_counter()
        done = await asyncio.gather(*(self._rollout(script, places) for script in self._scripts))
        seconds = time.perf_counter() - started
        failed = [f"{each.task.key}: {each.outcome} {each.trajectory.cause}" for each in done if not each.success]
        if failed:
            raise RuntimeError(f"{len(failed)} rollouts did not replay their script: {failed[0]}")
        ids = [list(completion(each.trajectory)[0]) for each in done]
        sampled = sum(each.trajectory.sampled_tokens for each in done)
        return Batch(seconds, ids, sampled, self.engine.stats.prefill_seconds - prefill)

    async def _rollout(self, script: Script, places: asyncio.Semaphore) -> Rollout:
        name = f"script-{script.index}"
        task = Task(key=name, family="replay", question=script.question, answer=script.answer)
        async with places:
            with self._dispatcher.episode() as episode:
                call = partial(episode.call, timeout_s=CALL_TIMEOUT_S)
                return await rollout(task, self._policy, call, grade, BUDGETS, key=script.index, session=name)

    async def close(self) -> None:
        self.engine.close()
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        await self._dispatcher.close()
        await self._broker.close()


class Raw:
    """The engine alone: one row a context, all of them decoding together. No tools, no parsing, no end of turn."""

    def __init__(self, shared: Shared, scripts: Sequence[Script], contexts: Sequence[Sequence[int]]) -> None:
        self._engine = ForcedEngine(shared.model, scripts, rows=len(contexts), context=CONTEXT, barrier=True)
        self._contexts = contexts

    async def speed(self) -> float:
        """Sampled tokens a second; the prefill of the contexts is taken out of the time."""
        engine = self._engine
        engine.restart()
        sessions = [str(index) for index in range(len(self._contexts))]
        engine.open(sessions)
        tokens, prefill = engine.stats.sampled_tokens, engine.stats.prefill_seconds
        requests = [
            Request(ids, RAW_TOKENS, Sampling(), key=index, session=session)
            for index, (ids, session) in enumerate(zip(self._contexts, sessions, strict=True))
        ]
        started = time.perf_counter()
        async with asyncio.timeout(RAW_TIMEOUT_S):
            await asyncio.gather(*map(engine.generate, requests))
        seconds = time.perf_counter() - started - (engine.stats.prefill_seconds - prefill)
        for session in sessions:
            engine.release(session)
        return (engine.stats.sampled_tokens - tokens) / seconds

    def close(self) -> None:
        self._engine.close()


def contexts_in_use(shared: Shared, scripts: Sequence[Script], batch: Batch, seed: int = 0) -> list[list[int]]:
    """A context of every rollout, cut at a random place: the mix of lengths that the engine meets in the rollouts."""
    rng = random.Random(seed)
    return [
        shared.codec.prompt([{"role": "user", "content": script.question}]) + ids[: rng.randrange(len(ids))]
        for script, ids in zip(scripts, batch.ids, strict=True)
    ]
