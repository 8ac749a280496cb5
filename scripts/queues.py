"""``callwright queues``: what stands in the queues between a run and its workers, and what to do with dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from callwright.scripts.common import JsonFile, config_from_words, shared_settings, write_json
from callwright.scripts.train import Words
from callwright.serving.errors import UserError
from callwright.serving.queues.broker import REWARD_QUEUE, command_queue, dead_letters
from callwright.serving.queues.dead_letters import discard, replay

if TYPE_CHECKING:
    from callwright.serving.queues.broker import Broker

ReplayOption = Annotated[str | None, typer.Option("--replay", metavar="QUEUE", help="Send its dead letters again.")]
DiscardOption = Annotated[str | None, typer.Option("--discard", metavar="QUEUE", help="Throw its dead letters away.")]


def queues(
    words: Words = None, replay: ReplayOption = None, discard: DiscardOption = None, json_file: JsonFile = None
) -> None:
    """Show the queues of a config's broker: messages, the oldest one's age, leases, dead letters, workers."""
    if replay is not None and discard is not None:
        raise UserError("say one of --replay and --discard")
    config = config_from_words(words or [], default="quickstart")
    from callwright.envs.executors.brokers import open_broker
    from callwright.training.executor_settings import tools_of

    tools = {command_queue(tool): tool for tool in tools_of(config)}
    for name in (replay, discard):
        if name not in (None, REWARD_QUEUE, *tools):
            raise UserError(f"there is no queue {name}; there are {', '.join((*tools, REWARD_QUEUE))}")
    settings = shared_settings(config, tuple(tools.values()))
    if settings.broker == "sqlite" and not settings.queues.exists():
        raise UserError(
            f"executors.queues: there is no file {settings.queues}; no worker has used it yet, "
            "and a run that runs all its calls itself has its queues in memory"
        )
    rows = asyncio.run(_visit(open_broker(settings), tools, replay, discard))
    _show(rows, json_file)


async def _visit(
    broker: Broker, tools: Mapping[str, str], to_replay: str | None, to_discard: str | None
) -> list[dict[str, Any]]:
    console = Console(stderr=True, highlight=False)
    try:
        await broker.start(*tools, REWARD_QUEUE)
        if to_replay is not None:
            console.print(f"sent {await replay(broker, to_replay)} dead letters of {to_replay} again")
        if to_discard is not None:
            console.print(f"threw {await discard(broker, to_discard)} dead letters of {to_discard} away")
        return [await _row(broker, name, tools.get(name)) for name in (*tools, REWARD_QUEUE)]
    finally:
        await broker.close()


async def _row(broker: Broker, queue: str, tool: str | None) -> dict[str, Any]:
    from callwright.envs.executors.presence import present_workers

    stats = await broker.stats(queue)
    return {
        "queue": queue,
        "depth": stats.depth,
        "oldest_s": None if stats.oldest_s is None else round(stats.oldest_s, 1),
        "leased": stats.leased,
        "dead_letters": (await broker.stats(dead_letters(queue))).depth,
        "workers": None if tool is None else await present_workers(broker, tool),
    }


def _show(rows: list[dict[str, Any]], json_file: Path | None) -> None:
    write_json(json_file, {"queues": rows})
    if json_file is not None and str(json_file) == "-":
        return
    table = Table("queue")
    for name in ("messages", "oldest", "leased", "dead letters", "workers"):
        table.add_column(name, justify="right")
    for row in rows:
        age = None if row["oldest_s"] is None else f"{row['oldest_s']:.0f} s"
        cells = (row["depth"], age, row["leased"], row["dead_letters"], row["workers"])
        table.add_row(row["queue"], *("" if cell is None else str(cell) for cell in cells))
    Console(highlight=False).print(table)
