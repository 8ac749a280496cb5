"""What the question sets of FlashRAG have in common: a question, accepted answers, and a corpus to search."""

from __future__ import annotations

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Hub, Row, asked
from callwright.envs.tasks.task import Task

PROMPT = "{question}\nAnswer with a name, a number or a few words."


def search_qa(name: str, *, config: str, split: str, sample: str, licence: str) -> Benchmark:
    """A benchmark of ``RUC-NLPIR/FlashRAG_datasets``: exact match and F1, the best over the accepted answers."""

    def task(row: Row) -> Task:
        answers = [row["answer"]] if isinstance(row["answer"], str) else list(row["answer"])
        first, *others = (str(answer) for answer in answers)
        return Task(
            key=str(row["id"]),
            family=name,
            question=asked(PROMPT, row),
            answer=first,
            accepted=tuple(others),
            slice="benchmark",
            scorer="qa",
            grounded=False,
        )

    def hub_row(index: int, row: Row) -> Row:
        return {"id": f"{name}-{index}", "question": row["question"], "answer": row["golden_answers"]}

    return Benchmark(
        name=name,
        hub=Hub("RUC-NLPIR/FlashRAG_datasets", config, split),
        sample=sample,
        licence=licence,
        tools=("web",),
        prompt=PROMPT,
        metric="exact_match",
        task=task,
        hub_row=hub_row,
        means=("f1",),
    )
