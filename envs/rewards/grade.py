"""The one grading function: the evidence of a rollout, a reward function and a way to call a tool give a reward."""

from __future__ import annotations

from callwright.envs.rewards.calls import CallTool
from callwright.envs.rewards.correct import is_correct
from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.exact import Exact
from callwright.envs.rewards.reward import GradingFault, Reward, RewardFunction
from callwright.envs.rewards.storage import reached
from callwright.envs.rewards.unit_tests import LONGEST_SOLUTION, grading_run
from callwright.envs.tasks.task import Task
from callwright.serving.queues.reply import CallStatus

DEFAULT: RewardFunction = Exact()


async def grade(evidence: Evidence, call: CallTool, *, function: RewardFunction = DEFAULT) -> Reward:
    """What an ended rollout earns. Raises ``GradingFault`` as ``solves`` does."""
    correct = evidence.finished and await solves(evidence.task, evidence.solution or "", call)
    return Reward(function.parts(evidence, correct), correct)


async def solves(task: Task, solution: str, call: CallTool) -> bool:
    """Whether an answer is right, and with it what its storage account holds; a blank one is not.

    Raises ``GradingFault`` where the tests could not be run, or the account not be read.
    """
    if not solution.strip():
        return False
    right = is_correct(task, solution) if task.tests is None else await _passes(solution, task.tests, call)
    return right and (task.storage is None or await reached(task.storage, call))


async def _passes(solution: str, tests: str, call: CallTool) -> bool:
    if len(solution) > LONGEST_SOLUTION:
        return False
    run = grading_run(solution, tests)
    reply = await call(run.call)
    # A refusal of the grader's own call is no verdict on the solution either.
    if reply.status in (CallStatus.INFRA_FAULT, CallStatus.REJECTED):
        raise GradingFault(f"unit tests were not run: {reply.status}: {reply.cause}")
    return run.passed(reply.record)


async def ungraded(evidence: Evidence, call: CallTool, /) -> Reward:
    """For a conversation or a demonstration, which nobody pays."""
    return Reward({}, success=False)
