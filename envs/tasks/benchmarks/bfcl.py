"""Berkeley Function Calling Leaderboard v4, single turn: the calls for a request, judged by bfcl-eval's AST checker.

The functions are the row's own, recorded and never run. Names are told with underscores for dots, as vendors' APIs need
it and the checker knows. In ``irrelevance`` no function fits, and the right answer is a text without a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Row, asked
from callwright.envs.tasks.benchmarks.bfcl_package import data_folder, lines_of, tool_name, tool_of
from callwright.envs.tasks.task import Functions, Task

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")


def _task(row: Row) -> Task:
    meta = row["meta"]
    needed = {function["name"]: function["parameters"].get("required", ()) for function in meta["functions"]}
    return Task(
        key=str(row["id"]),
        family=f"bfcl_{meta['category']}",
        question=asked(BFCL.prompt, row),
        answer=json.dumps([_gold_call(call, needed) for call in row["answer"]]),
        slice="benchmark",
        scorer="calls",
        grounded=False,
        functions=Functions(
            tools=tuple(map(tool_of, meta["functions"])),
            category=meta["category"],
            described=tuple(meta["functions"]),
            accepted=tuple(row["answer"]),
        ),
    )


def _gold_call(accepted: Mapping[str, Any], needed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The shortest accepted call: an empty text among its values says that an argument may be left out."""
    ((name, arguments),) = accepted.items()
    kept = {key: values for key, values in arguments.items() if "" not in values or key in needed.get(name, ())}
    return {tool_name(name): {key: _first(values) for key, values in kept.items()}}


def _first(values: Sequence[Any]) -> Any:
    """The first value that says something; an argument's own empty text is one where there is no other."""
    value = next((value for value in values if value != ""), "")
    if isinstance(value, Mapping):
        return {key: _first(inner) for key, inner in value.items() if "" not in inner}
    if isinstance(value, list):
        return [_first([item]) if isinstance(item, Mapping) else item for item in value]
    return value


def _package_rows() -> Iterator[Row]:
    """The rows that the package ships."""
    data = data_folder()
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        answers = data / "possible_answer" / name
        gold = {row["id"]: row["ground_truth"] for row in lines_of(answers)} if answers.is_file() else {}
        for row in lines_of(data / name):
            meta = {"category": category, "functions": row["function"]}
            question = row["question"][0][-1]["content"]
            yield {"id": row["id"], "question": question, "answer": gold.get(row["id"], []), "meta": meta}


BFCL = Benchmark(
    name="bfcl",
    hub=None,
    sample="bfcl_v4_200.jsonl",
    licence="Apache-2.0",
    tools=(),
    prompt="{question}",
    metric="ast_accuracy",
    task=_task,
    hub_row=lambda index, row: row,
    needs="bfcl_eval",
    package_rows=_package_rows,
)
