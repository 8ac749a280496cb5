"""An lm-eval model class over our rollout: a context is a question, and what is generated is the final answer.

    lm_eval.simple_evaluate(model=RolloutLM(session), tasks=["gsm8k"], limit=100)

Limits: tasks that ask for log-likelihoods are refused, because an answer after tool calls has none; sampling and
budgets are those of the player's config, and of the generation arguments only ``until`` is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Never

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from callwright.envs.adapters.player import Player
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.errors import RunError, UserError


class RolloutLM(LM):  # type: ignore[misc]
    """``rollouts`` of them run at once."""

    def __init__(self, player: Player, rollouts: int = 16) -> None:
        super().__init__()
        self._player = player
        self._rollouts = rollouts

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The answers, in order, each up to the first of its stop texts. Raises RunError for a fault of ours."""
        with ThreadPoolExecutor(self._rollouts, "callwright-lm-eval") as pool:
            return list(pool.map(self._answer, requests, range(len(requests))))

    def _answer(self, request: Instance, number: int) -> str:
        context, arguments = request.args
        # lm-eval grades the text itself, so the task has no answer of its own.
        task = Task(key=f"lm-eval/{number}", family="lm_eval", question=context, answer="", scorer="any")
        done = self._player.play(task)
        if not done.outcome.in_baseline:
            raise RunError(f"{done.outcome}: {done.trajectory.cause}")
        return _until(_solution(done), arguments.get("until", ()))

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> Never:
        raise UserError("an answer after tool calls has no log-likelihood: choose tasks of the type generate_until")

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> Never:
        self.loglikelihood(requests)


def _solution(done: Rollout) -> str:
    return done.solution or ""


def _until(text: str, stops: str | Sequence[str]) -> str:
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.partition(stop)[0] if stop else text
    return text
