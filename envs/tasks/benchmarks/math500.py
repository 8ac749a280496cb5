"""MATH-500, competition problems (Lightman et al., 2023, after Hendrycks et al., 2021): scored by math-verify.

Its problems are known to stand in the training data of some models, so a high score says little of those.
"""

from __future__ import annotations

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Hub, Row, asked
from callwright.envs.tasks.task import Task


def _task(row: Row) -> Task:
    return Task(
        key=str(row["id"]),
        family="math500",
        question=asked(MATH500.prompt, row),
        answer=str(row["answer"]),
        slice="benchmark",
        scorer="math",
        grounded=False,
    )


def _hub_row(index: int, row: Row) -> Row:
    return {"id": f"math500-{index}", "question": row["problem"], "answer": row["answer"]}


MATH500 = Benchmark(
    name="math500",
    hub=Hub("HuggingFaceH4/MATH-500", None, "test"),
    sample="math500_200.jsonl",
    licence="MIT",
    tools=("code",),
    prompt="{question}\nAnswer with the final result alone, in LaTeX.",
    metric="accuracy",
    task=_task,
    hub_row=_hub_row,
    needs="math_verify",
)
