"""The rows that an evaluation counts: those of a benchmark that its corpus can answer, or those of a task family.

Invariant: where the search runs over a local corpus, a row counts only if one of its accepted answers stands in a
document. A yes or a no stands in every corpus and says nothing, so such rows are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from callwright.envs.rewards.qa import squad_normalise
from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Metric, json_lines, load_tasks
from callwright.envs.tasks.benchmarks.registry import get_benchmark
from callwright.envs.tasks.registry import FAMILIES, MIXES
from callwright.envs.tasks.suite import FamilySpec, build_suite
from callwright.envs.tasks.task import Task
from callwright.envs.tasks.world import WorldSpec
from callwright.serving.errors import UserError

FAMILY_ROWS = 200  # of a task family, where no limit is set
# bfcl-eval pins versions of libraries that it never uses here, so it comes without its dependencies.
_INSTALL = {
    "math_verify": "pip install 'callwright[eval]'",
    "bfcl_eval": "make bfcl, or pip install --no-deps bfcl-eval",
}
_ANYWHERE = ("yes", "no")
Document = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Rows:
    """What is asked: ``left_out`` counts rows that the corpus cannot answer; ``documents`` are (title, text)."""

    name: str
    tasks: tuple[Task, ...]
    tools: tuple[str, ...]
    metric: Metric
    means: tuple[str, ...]
    licence: str
    source: str
    documents: tuple[Document, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows: ``path`` holds them in place of the hub; ``documents`` is a local search corpus, None where the
    search is a service. ``world``, ``families`` and ``seed`` make the tasks of a family."""

    path: Path | None
    limit: int | None
    documents: Path | None
    local_search: bool
    world: WorldSpec
    families: Mapping[str, FamilySpec]
    seed: int


def open_rows(name: str, choice: Choice) -> Rows:
    """The rows of a benchmark or of a task family. Raises UserError."""
    if name in choice.families or name in FAMILIES or name in MIXES:
        return _family_rows(name, choice)
    benchmark = get_benchmark(name)
    if benchmark.needs and find_spec(benchmark.needs) is None:
        raise UserError(f"{name} is scored by {benchmark.needs}: {_INSTALL[benchmark.needs]}")
    tasks = load_tasks(benchmark, choice.path, choice.limit)
    if not tasks:
        raise UserError(f"{name}: {choice.path or 'the hub set'} has no rows; rows= names a JSONL file with one a line")
    documents = tuple(read_documents(choice.documents)) if benchmark.searches and choice.documents else ()
    if benchmark.searches and choice.local_search:
        if not documents:
            raise UserError(f"{name} is answered by search: name a corpus with documents=FILE, or set a search service")
        kept = answerable(tasks, documents)
    else:
        kept = tasks
    if not kept:
        raise UserError(f"{name}: none of the {len(tasks)} rows can be answered from {choice.documents}")
    return _rows(benchmark, choice, kept, documents, len(tasks) - len(kept))


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a JSONL file of ``{title, text}``. Raises UserError."""
    for document in json_lines(path, ("title", "text")):
        yield str(document["title"]), str(document["text"])


def answerable(tasks: Sequence[Task], documents: Sequence[Document]) -> list[Task]:
    """The tasks that have an accepted answer in a document, as whole words after SQuAD's normalisation."""
    # A bar between documents, which no normalised answer holds: an answer must not reach over two of them.
    corpus = "|".join(f" {squad_normalise(f'{title} {text}')} " for title, text in documents)

    def stands(answer: str) -> bool:
        words = squad_normalise(answer)
        return bool(words) and words not in _ANYWHERE and f" {words} " in corpus

    return [task for task in tasks if any(map(stands, (task.answer, *task.accepted)))]


def _rows(
    benchmark: Benchmark, choice: Choice, tasks: Sequence[Task], documents: tuple[Document, ...], left_out: int
) -> Rows:
    return Rows(
        name=benchmark.name,
        tasks=tuple(tasks),
        tools=benchmark.tools,
        metric=benchmark.metric,
        means=benchmark.means,
        licence=benchmark.licence,
        source=_source(benchmark, choice),
        documents=documents,
        left_out=left_out,
    )


def _source(benchmark: Benchmark, choice: Choice) -> str:
    if choice.path is not None and choice.path.is_file():
        return choice.path.name
    if choice.path is not None and benchmark.sample:
        return benchmark.sample
    return benchmark.hub.id if benchmark.hub else str(benchmark.needs)


def _family_rows(name: str, choice: Choice) -> Rows:
    specs = {each: choice.families.get(each, FamilySpec()) for each in MIXES.get(name, (name,))}
    suite = build_suite(specs, choice.world, choice.seed)
    return Rows(
        name=name,
        tasks=tuple(suite.evaluation("new_seeds", choice.limit or FAMILY_ROWS)),
        tools=tuple(dict.fromkeys(tool for family in suite.families.values() for tool in family.tools)),
        metric="accuracy",
        means=(),
        licence="generated",
        source="task family",
        documents=tuple(suite.documents()),
    )
