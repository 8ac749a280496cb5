"""``callwright eval --check``: every row of a benchmark against its own scorer. Needs no torch and no model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from callwright.envs.benchmark_check import check_rows
from callwright.envs.executors.service import Executors
from callwright.envs.rewards import GoldFailure, GradingFault, gold_check
from callwright.envs.tasks.benchmarks.rows import Rows, open_rows
from callwright.serving.errors import RunError, UserError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply
from callwright.training.benchmark_choice import choice_of
from callwright.training.config import Config
from callwright.training.executor_settings import executor_settings, searches_tasks

CALL_S = 300.0  # for one run of unit tests, the wait for a free worker included


def check_benchmarks(config: Config) -> dict[str, list[str]]:
    """The failing rows of each benchmark, one line each; printed too, with a count. Raises UserError, RunError."""
    if not config.eval.benchmark:
        raise UserError("eval --check: say which, as in benchmark=gsm8k,math500")
    # Every row is checked, also those that a corpus could not answer.
    choice = replace(choice_of(config), local_search=False)
    found = {}
    for name in dict.fromkeys(config.eval.benchmark):
        rows = open_rows(name, choice)
        tasks = rows.tasks
        failures = asyncio.run(_failures(config, rows))
        found[name] = [f"{failure.key}: {failure.reason}" for failure in failures]
        print(f"{name}: {len(tasks)} rows, {len({failure.key for failure in failures})} fail")
        for line in found[name]:
            print(f"  {line}")
    return found


async def _failures(config: Config, rows: Rows) -> list[GoldFailure]:
    tasks = rows.tasks
    if any(task.plan for task in tasks):
        return await _planned(config, rows)
    if not any(task.tests for task in tasks):
        return await check_rows(tasks, _no_call)
    async with Executors(executor_settings(config, ("code",))) as executors:
        return await check_rows(tasks, partial(executors.dispatcher.call, timeout_s=CALL_S))


async def _planned(config: Config, rows: Rows) -> list[GoldFailure]:
    """Rows with gold calls are checked through their executors: the last result must hold the answer, and a deed must
    be done."""
    settings = executor_settings(config, rows.tools)
    documents = rows.documents if "web" in rows.tools and searches_tasks(config) else None
    async with Executors(settings, documents=documents) as tools:
        try:
            return await gold_check(rows.tasks, partial(tools.episode, lambda tool: CALL_S))
        except GradingFault as error:
            raise RunError(str(error)) from error


async def _no_call(call: ToolCall) -> Reply:
    raise RuntimeError(f"rows without tests need no call: {call.name}")
