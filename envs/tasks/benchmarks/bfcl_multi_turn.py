"""Berkeley Function Calling Leaderboard v4, multi-turn base: a user's wishes one after another, to simulated services.

The services run in bfcl-eval, in a process of their own, and its checker compares what they hold and said after each
wish. A sample of the rows has everything in ``meta`` but the functions, which the package describes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Row, asked
from callwright.envs.tasks.benchmarks.bfcl_package import data_folder, lines_of, tool_of
from callwright.envs.tasks.task import Functions, Scenario, Task
from callwright.serving.protocol.values import Tool

_CATEGORY = "multi_turn_base"


def _task(row: Row) -> Task:
    meta, gold = row["meta"], row["answer"]
    excluded = meta.get("excluded_function", ())
    tools = [tool for name in meta["involved_classes"] for tool in _functions(name) if tool.name not in excluded]
    scenario = Scenario(str(row["id"]), tuple(meta["involved_classes"]), meta["initial_config"])
    return Task(
        key=str(row["id"]),
        family=f"bfcl_{_CATEGORY}",
        question=asked(BFCL_MULTI_TURN.prompt, row),
        answer=json.dumps(gold),
        slice="benchmark",
        grounded=False,
        functions=Functions(tuple(tools), "scenario", accepted=tuple(gold), scenario=scenario),
        followups=tuple(meta["followups"]),
    )


@cache
def _functions(service: str) -> tuple[Tool, ...]:
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    described = data_folder() / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[service]
    return tuple(map(tool_of, lines_of(described)))


def _package_rows() -> Iterator[Row]:
    """The rows that the package ships."""
    name = f"BFCL_v4_{_CATEGORY}.json"
    gold = {row["id"]: row["ground_truth"] for row in lines_of(data_folder() / "possible_answer" / name)}
    for row in lines_of(data_folder() / name):
        first, *followups = ("\n".join(said["content"] for said in turn) for turn in row["question"])
        yield {"id": row["id"], "question": first, "answer": gold[row["id"]], "meta": {**row, "followups": followups}}


BFCL_MULTI_TURN = Benchmark(
    name="bfcl_multi_turn",
    hub=None,
    sample=None,
    licence="Apache-2.0",
    tools=(),
    prompt="{question}",
    metric="accuracy",
    task=_task,
    hub_row=lambda index, row: row,
    needs="bfcl_eval",
    package_rows=_package_rows,
)
