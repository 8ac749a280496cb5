"""Benchmarks as rows: every loader on the public samples, what a corpus can answer, and mistakes in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from callwright.envs.rewards.grade import solves
from callwright.envs.tasks.benchmarks.benchmark import load_tasks
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.benchmarks.rows import Choice, answerable, open_rows, read_documents
from callwright.envs.tasks.task import Task
from callwright.envs.tasks.world import WorldSpec
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply

pytestmark = pytest.mark.unit

SAMPLED = {
    **{"gsm8k": 200, "math500": 200, "nq": 200, "hotpotqa": 200, "2wiki": 200, "musique": 200, "bamboogle": 125},
    **{"humaneval": 164, "mbpp": 200, "bfcl": 200, "azure_choice": 200},
}


def samples() -> Path:
    folder = os.environ.get("CALLWRIGHT_SAMPLES")
    if not folder:
        pytest.skip("CALLWRIGHT_SAMPLES is unset: it names the folder of the public samples")
    return Path(folder)


def choice(**changes: Any) -> Choice:
    given: dict[str, Any] = {
        **{"path": None, "limit": None, "documents": None, "local_search": False},
        **{"world": WorldSpec(), "families": {}, "seed": 0, **changes},
    }
    return Choice(**given)


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", SAMPLED)
def test_a_loader_reads_its_sample(name: str) -> None:
    tasks = load_tasks(BENCHMARKS[name], samples())
    assert len({task.key for task in tasks}) == len(tasks) == SAMPLED[name]
    assert all(task.question and task.answer and task.family.startswith(name) for task in tasks)
    assert load_tasks(BENCHMARKS[name], samples(), limit=3) == tasks[:3]


@pytest.mark.parametrize("name", ["triviaqa", "popqa"])
def test_a_set_without_a_sample_reads_the_same_shape(name: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", {"id": "a", "question": "Who?", "answer": ["Ada", "A. Lovelace"]})
    (task,) = load_tasks(BENCHMARKS[name], path)
    assert (task.key, task.answer, task.accepted, task.scorer) == ("a", "Ada", ("A. Lovelace",), "qa")
    assert task.question.startswith("Who?\n")


@pytest.mark.parametrize(
    ("name", "hub_row", "answer"),
    [
        ("gsm8k", {"question": "q", "answer": "so\n#### 1,200"}, "1200"),
        ("math500", {"problem": "q", "answer": r"\frac12"}, r"\frac12"),
        ("nq", {"question": "q", "golden_answers": ["x", "y"]}, "x"),
        (
            "humaneval",
            {"task_id": "a", "prompt": "def f():\n", "canonical_solution": "    1", "entry_point": "f", "test": ""},
            "    1",
        ),
        (
            "mbpp",
            {"task_id": 1, "text": "q", "code": "def f(): 1", "test_list": ["assert f()"], "test_setup_code": ""},
            "def f(): 1",
        ),
    ],
)
def test_a_row_of_the_hub_becomes_the_same_task(name: str, hub_row: dict[str, Any], answer: str) -> None:
    benchmark = BENCHMARKS[name]
    assert benchmark.task(benchmark.hub_row(7, hub_row)).answer == answer


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_a_benchmark_declares_what_it_is(benchmark: Any) -> None:
    assert benchmark.hub.id.count("/") == 1 if benchmark.hub else benchmark.package_rows or benchmark.sample
    assert benchmark.licence
    assert "{question}" in benchmark.prompt
    assert set(benchmark.tools) <= {"web", "code"}


def test_a_corpus_answers_rows_whose_answer_stands_in_one_document() -> None:
    documents = [("Oslo", "Oslo is the capital of Norway, yes."), ("Ada", "A. Lovelace wrote notes.")]
    kept = answerable(
        [
            Task("in", "nq", "?", "the Norway"),
            Task("alias", "nq", "?", "Ada King", accepted=("Lovelace",)),
            Task("part of a word", "nq", "?", "Nor"),
            Task("over two documents", "nq", "?", "yes Ada"),
            Task("yes", "nq", "?", "yes"),
            Task("nothing", "nq", "?", "the"),
        ],
        documents,
    )
    assert [task.key for task in kept] == ["in", "alias"]


def test_only_rows_that_the_corpus_can_answer_count() -> None:
    folder = samples()
    rows = open_rows("2wiki", choice(path=folder, documents=folder / "wiki_corpus_6119.jsonl", local_search=True))
    assert rows.left_out + len(rows.tasks) == 200
    assert 80 <= len(rows.tasks) <= 112
    assert len(rows.documents) == 6119
    assert rows.source == "2wiki_200.jsonl"
    # A service may answer any row.
    assert open_rows("2wiki", choice(path=folder)).left_out == 0


def test_a_task_family_is_a_benchmark_too() -> None:
    rows = open_rows("lookup", choice(limit=5))
    assert [task.slice for task in rows.tasks] == ["new_seeds"] * 5
    assert rows.documents


def test_the_azure_families_are_one_benchmark() -> None:
    rows = open_rows("azure", choice(limit=16))
    assert rows.tools == ("azure",)
    assert len({task.family for task in rows.tasks}) == 8
    assert all(task.storage for task in rows.tasks)


def test_an_azure_prompt_offers_its_tool_among_others(tmp_path: Path) -> None:
    prompts = [("storage", "storage_blob_get"), ("storage", "storage_account_get"), ("acr", "acr_list")]
    prompts += [(f"service{n}", f"service{n}_get") for n in range(30)]
    rows = [{"id": name, "question": "Do it", "answer": name, "meta": {"namespace": space}} for space, name in prompts]
    tasks = load_tasks(BENCHMARKS["azure_choice"], write_rows(tmp_path / "rows.jsonl", *rows))
    for task, (_, name) in zip(tasks, prompts, strict=True):
        assert task.functions is not None
        offered = [tool.name for tool in task.functions.tools]
        assert name in offered
        assert len(offered) == len(set(offered)) in (16, 17)
    assert load_tasks(BENCHMARKS["azure_choice"], tmp_path / "rows.jsonl", limit=2) == tasks[:2]


async def test_only_the_one_right_tool_is_right(tmp_path: Path) -> None:
    rows = [{"id": n, "question": "Do it", "answer": n, "meta": {"namespace": "a"}} for n in ("a_get", "a_list")]
    task, _ = load_tasks(BENCHMARKS["azure_choice"], write_rows(tmp_path / "rows.jsonl", *rows))

    async def no_call(call: ToolCall) -> Reply:
        raise AssertionError("nothing runs")

    assert await solves(task, task.answer, no_call)
    for wrong in ('[{"a_list": {}}]', '[{"a_get": {}}, {"a_list": {}}]', "[]", ""):
        assert not await solves(task, wrong, no_call)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean gsm8k"):
        open_rows("gsm8", choice())
    with pytest.raises(UserError, match="no file"):
        open_rows("gsm8k", choice(path=tmp_path))
    with pytest.raises(UserError, match=r"rows.jsonl:1: needs answer"):
        open_rows("gsm8k", choice(path=write_rows(tmp_path / "rows.jsonl", {"id": "a", "question": "q"})))
    (tmp_path / "rows.jsonl").write_text("{\n")
    with pytest.raises(UserError, match=r"rows.jsonl:1: not a JSON line"):
        open_rows("gsm8k", choice(path=tmp_path / "rows.jsonl"))
    row = write_rows(tmp_path / "qa.jsonl", {"id": "a", "question": "q", "answer": ["x"]})
    with pytest.raises(UserError, match="documents=FILE"):
        open_rows("nq", choice(path=row, local_search=True))
    documents = write_rows(tmp_path / "documents.jsonl", {"title": "t", "text": "nothing"})
    assert list(read_documents(documents)) == [("t", "nothing")]
    with pytest.raises(UserError, match="none of the 1 rows"):
        open_rows("nq", choice(path=row, local_search=True, documents=documents))
