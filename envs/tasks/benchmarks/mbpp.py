"""MBPP: write a small function, graded by its asserts in the sandbox (Austin et al., 2021).

The asserts stand in the prompt, because only they tell the function's name. What it takes and returns crosses a pipe as
plain literals, so that a solution never meets the tests that run.
"""

from __future__ import annotations

import ast
import warnings

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Hub, Row, asked
from callwright.envs.tasks.task import Program, Task
from callwright.serving.errors import UserError


def _task(row: Row) -> Task:
    meta, solution = row["meta"], str(row["answer"]).replace("\r\n", "\n")
    asserts = "\n".join(meta["tests"])
    entry = _entry(asserts, solution)
    return Task(
        key=str(row["id"]),
        family="mbpp",
        question=asked(MBPP.prompt, row).replace("{tests}", asserts),
        answer=solution,
        tests=f"{meta.get('test_setup_code') or ''}\n{entry} = answer\n{asserts}\n",
        slice="benchmark",
        grounded=False,
        program=Program(entry),
    )


def _entry(asserts: str, solution: str) -> str:
    """The function that the asserts call, of those that the gold solution defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # published solutions hold escapes that Python warns of
        defined = {node.name for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef)}
    names = (node.id for node in ast.walk(ast.parse(asserts)) if isinstance(node, ast.Name))
    entry = next((name for name in names if name in defined), None)
    if entry is None:
        raise UserError(f"mbpp: no function of the gold solution is called in {asserts!r}")
    return entry


def _hub_row(index: int, row: Row) -> Row:
    meta = {"tests": row["test_list"], "test_setup_code": row["test_setup_code"]}
    return {"id": f"mbpp-{row['task_id']}", "question": row["text"], "answer": row["code"], "meta": meta}


MBPP = Benchmark(
    name="mbpp",
    hub=Hub("google-research-datasets/mbpp", "full", "test"),
    sample="mbpp_200.jsonl",
    licence="CC-BY-4.0",
    tools=("code",),
    prompt="{question}\nAnswer with the function alone. It must pass:\n{tests}",
    metric="pass_rate",
    task=_task,
    hub_row=_hub_row,
)
