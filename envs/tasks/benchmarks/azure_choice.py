"""Prompts for the tools of Microsoft's Azure MCP server: is the right one called? Nothing runs.

The prompts stand in that project's documentation; there is no set on the hub, so rows= names a file. Of the tools only
the names are known there. A row offers those that the rows of its own service and of the next ones in the alphabet ask
for, sixteen at least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Row, asked
from callwright.envs.tasks.task import Functions, Task
from callwright.serving.protocol.values import Tool

_OFFERED = 16
_NO_ARGUMENTS = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _task(row: Row) -> Task:
    answer = str(row["answer"])
    return Task(
        key=str(row["id"]),
        family="azure_choice",
        question=asked(AZURE_CHOICE.prompt, row),
        answer=f'[{{"{answer}": {{}}}}]',
        slice="benchmark",
        grounded=False,
        functions=Functions(tuple(map(_tool, row["meta"]["offered"])), "names", accepted=(answer,)),
    )


def _tool(name: str) -> Tool:
    return Tool(name, f"{name.replace('_', ' ').replace('-', ' ').capitalize()}.", _NO_ARGUMENTS)


def _with_offers(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows with the names of the tools that each offers."""
    names: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        names[row["meta"]["namespace"]].add(str(row["answer"]))
    services = sorted(names)
    for row in rows:
        at, offered = services.index(row["meta"]["namespace"]), list[str]()
        for service in (*services[at:], *services[:at]):
            if len(offered) < _OFFERED:
                offered += sorted(names[service])
        yield {**row, "meta": {**row["meta"], "offered": sorted(offered)}}


AZURE_CHOICE = Benchmark(
    name="azure_choice",
    hub=None,
    sample="azure_mcp_prompts_200.jsonl",
    licence="MIT",
    tools=(),
    prompt="{question}\nCall the one tool for this, without arguments, and say that it is done.",
    metric="accuracy",
    task=_task,
    hub_row=lambda index, row: row,
    together=_with_offers,
)
