"""One task row: a question, what may be called, the gold plan and the gold answer.

Invariants: a task is immutable and addressed by ``key`` (with the suite's seed it rebuilds the task bit for bit); the
answer never stands in the question of a procedural task; running ``plan`` through the real executors and then answering
``answer`` earns reward 1.0 (the gold check).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from callwright.envs.tasks.storage import StorageGoal
from callwright.serving.protocol.values import Tool

Scorer = Literal["exact", "numeric", "qa", "math", "calls", "any"]
Score = Callable[[str], Awaitable[float]]
"""What another framework makes of a solution; 1 and more is right."""


@dataclass(frozen=True, slots=True)
class Step:
    """One gold call: the tool's name and its exact arguments."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A solution that is a program: ``entry`` is the function that its tests call, ``prefix`` what a solution without
    that function is a continuation of."""

    entry: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Simulated services of bfcl-eval by the names of their classes, and what each of them begins with."""

    id: str
    classes: tuple[str, ...]
    begins: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions that belong to one row: the calls are the answer. ``tools`` are what the model is told; the judge reads
    ``described`` and ``accepted`` as the benchmark has them. Without a ``scenario`` calls are noted and never run.

    ``ast``: calls and arguments, by bfcl-eval's checker. ``names``: ``accepted`` are the names called, in order.
    ``scenario``: what the services hold and said after each of the user's messages, by bfcl-eval's checker."""

    tools: tuple[Tool, ...]
    judge: Literal["ast", "names", "scenario"] = "ast"
    category: str = ""
    described: tuple[Mapping[str, Any], ...] = ()
    accepted: tuple[Any, ...] = ()
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A row of a task family or of a benchmark.

    ``tests`` holds Python assert lines for families that are paid by unit tests run in the code executor; the name
    ``answer`` in them is the submitted solution, or the function that ``program`` names in it. ``guesses`` are
    plausible wrong answers (what a policy that does not call tools would say). ``slice`` is the evaluation slice the
    row belongs to, ``train`` or ``benchmark``. ``scorer`` says how an answer without ``tests`` is compared; ``any`` is
    for tasks that are all deed: whatever it says, it says that it is done. ``grounded``: the last gold observation
    contains the answer. ``storage`` says what a storage account holds before, and what it must hold after, whatever
    the answer. ``followups`` are what the user says after each answer but the last. ``score`` judges in the place of
    every other comparison.
    """

    key: str
    family: str
    question: str
    answer: str
    plan: tuple[Step, ...] = ()
    tests: str | None = None
    guesses: tuple[str, ...] = ()
    slice: str = "new_seeds"
    template: str = ""
    accepted: tuple[str, ...] = field(default_factory=tuple)
    scorer: Scorer = "exact"
    grounded: bool = True
    program: Program | None = None
    functions: Functions | None = None
    storage: StorageGoal | None = None
    followups: tuple[str, ...] = ()
    score: Score | None = None
