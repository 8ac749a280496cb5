"""Scripted solvers: they write turns as a policy would, and run through the same rollout function.

A solver has habits: with some probability it guesses at once, starts with a needless call, or leaves its chain half
way. Invariant: what a script does depends only on the task and the random generator it is given.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from callwright.envs.tasks.task import Step, Task
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Completion, FinishReason, Request
from callwright.serving.protocol import ToolCall, get_dialect


@dataclass(frozen=True, slots=True)
class Habits:
    """Probabilities.

    ``guess``: answer at once where calls are needed. ``slip``: answer wrongly where none is. ``stray``: begin with a
    needless search. ``leave``: after each call, answer with a guess instead of going on (after the last: wrongly).
    """

    guess: float = 0.0
    slip: float = 0.0
    stray: float = 0.0
    leave: float = 0.0


def script(task: Task, habits: Habits, rng: random.Random, dialect: str = "tags") -> list[str]:
    """The turns that a solver with these habits writes for a task."""
    wrong = rng.choice(task.guesses) if task.guesses else "unknown"
    if rng.random() < (habits.guess if task.plan else habits.slip):
        return [solution(wrong, dialect)]
    turns = []
    needless = _needless(task)
    if needless is not None and rng.random() < habits.stray:
        turns.append(call(needless, dialect))
    for step in task.plan:
        turns.append(call(step, dialect))
        if rng.random() < habits.leave:
            return [*turns, solution(wrong, dialect)]
    return [*turns, solution(task.answer, dialect)]


def _needless(task: Task) -> Step | None:
    """A search for a word of the question, where the plan does not begin with a search."""
    words = re.findall(r"[A-Z]{2,}|\d+", task.question)
    if not words or (task.plan and task.plan[0].tool == "web"):
        return None
    return Step("web", {"q": words[0], "k": 1})


def call(step: Step, dialect: str = "tags") -> str:
    """A gold call."""
    return get_dialect(dialect).render_call(ToolCall(step.tool, step.arguments))


def solution(answer: str, dialect: str = "tags") -> str:
    """A final answer."""
    return get_dialect(dialect).render_solution(answer)


class ScriptedEngine:
    """An engine whose samples are a script's turns; logprobs are 0 (it is certain).

    A turn that its text does not end, and one past the script, is ended by the end token.
    """

    def __init__(self, codec: Codec, turns: list[str]) -> None:
        self._codec = codec
        self._turns = iter(turns)
        self.version = 0

    def open(self, sessions: Iterable[str]) -> None:
        """Scripts wait for nobody."""

    async def generate(self, request: Request) -> Completion:
        ids = tuple(self._codec.markers(next(self._turns, "")))
        end = tuple(self._codec.eos)[:1]
        reason = FinishReason.STOP
        if len(ids) <= request.max_new_tokens and end and not (request.stop is not None and request.stop(ids)):
            ids, reason = ids + end, FinishReason.EOS
        if len(ids) > request.max_new_tokens:
            ids, reason = ids[: request.max_new_tokens], FinishReason.LENGTH
        return Completion(ids, (0.0,) * len(ids), reason)

    def release(self, session: str) -> None:
        """Nothing is held."""
