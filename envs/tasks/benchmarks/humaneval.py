"""HumanEval: complete a function, graded by its unit tests in the sandbox (Chen et al., 2021).

What the function takes and returns crosses a pipe as plain literals, so that a solution never meets the tests.
"""

from __future__ import annotations

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Hub, Row, asked
from callwright.envs.tasks.task import Program, Task


def _task(row: Row) -> Task:
    meta = row["meta"]
    entry, prompt = str(meta["entry_point"]), str(row["question"])
    # Tests use imports and helpers of the prompt; its unfinished function is replaced by the submitted one.
    tests = f"{prompt}    pass\n{entry} = answer\n{meta['test']}\ncheck(answer)\n"
    return Task(
        key=str(row["id"]),
        family="humaneval",
        question=asked(HUMANEVAL.prompt, row),
        answer=str(row["answer"]),
        tests=tests,
        slice="benchmark",
        grounded=False,
        program=Program(entry, prompt),
    )


def _hub_row(index: int, row: Row) -> Row:
    return {
        "id": row["task_id"],
        "question": row["prompt"],
        "answer": row["canonical_solution"],
        "meta": {"entry_point": row["entry_point"], "test": row["test"]},
    }


HUMANEVAL = Benchmark(
    name="humaneval",
    hub=Hub("openai/openai_humaneval", None, "test"),
    sample="humaneval_164.jsonl",
    licence="MIT",
    tools=("code",),
    prompt="Complete this function. Answer with the whole function alone.\n{question}",
    metric="pass_rate",
    task=_task,
    hub_row=_hub_row,
)
