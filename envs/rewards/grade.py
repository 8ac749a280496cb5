"""The one grading function: the evidence of a rollout, a reward function and a way to call a tool give a reward."""

from __future__ import annotations

import json
from dataclasses import asdict

from callwright.envs.rewards.calls import CallTool
from callwright.envs.rewards.correct import is_correct
from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.exact import Exact
from callwright.envs.rewards.judge import Judge, JudgeBroken, Question
from callwright.envs.rewards.math_answer import one_answer
from callwright.envs.rewards.program_text import program_text
from callwright.envs.rewards.reward import GradingFault, Reward, RewardFunction
from callwright.envs.rewards.storage import reached
from callwright.envs.rewards.unit_tests import LONGEST_SOLUTION, grading_run
from callwright.envs.tasks.task import Functions, Task
from callwright.serving.queues.reply import CallStatus

DEFAULT: RewardFunction = Exact()
MATH = Judge("callwright.envs.rewards.math_judge")
BFCL = Judge("callwright.envs.rewards.bfcl_judge")
SCENARIO = Judge("callwright.envs.rewards.bfcl_scenario")


async def grade(evidence: Evidence, call: CallTool, *, function: RewardFunction = DEFAULT) -> Reward:
    """What an ended rollout earns. Raises ``GradingFault`` where its answer could not be judged."""
    correct = evidence.finished and await solves(evidence.task, evidence.solution or "", call)
    return Reward(function.parts(evidence, correct), correct)


async def solves(task: Task, solution: str, call: CallTool) -> bool:
    """Whether an answer is right, and its storage account holds what it should; a blank answer is not right.

    Raises ``GradingFault`` where that could not be judged.
    """
    if not solution.strip():
        return False
    return await _right(task, solution, call) and (task.storage is None or await reached(task.storage, call))


async def _right(task: Task, solution: str, call: CallTool) -> bool:
    if task.score is not None:
        return await task.score(solution) >= 1.0
    if task.tests is not None:
        return await _passes(solution, task, call)
    if task.functions is not None:
        return await _calls_fit(solution, task.functions)
    return await _equals(solution, task) if task.scorer == "math" else is_correct(task, solution)


async def _equals(solution: str, task: Task) -> bool:
    said = one_answer(solution)
    return said is not None and await _judged(MATH, {"said": said, "accepted": [task.answer, *task.accepted]})


async def _calls_fit(solution: str, functions: Functions) -> bool:
    """``solution`` is the JSON of the calls that were made."""
    calls = json.loads(solution)
    if functions.judge == "names":
        return [name for call in calls for name in call] == list(functions.accepted)
    if functions.scenario is not None:
        return await _judged(SCENARIO, {"turns": calls, "accepted": functions.accepted, **asdict(functions.scenario)})
    if not calls or not functions.accepted:
        return not calls and not functions.accepted
    asked = {"functions": functions.described, "accepted": functions.accepted, "category": functions.category}
    return await _judged(BFCL, {"calls": calls, **asked})


async def _judged(judge: Judge, question: Question) -> bool:
    try:
        return await judge.ask(question)
    except JudgeBroken as error:
        raise GradingFault(str(error)) from error


async def _passes(solution: str, task: Task, call: CallTool) -> bool:
    if len(solution) > LONGEST_SOLUTION:
        return False
    source = solution if task.program is None else program_text(solution, task.program)
    run = grading_run(source, task.tests or "", task.program.entry if task.program else "")
    reply = await call(run.call)
    # A refusal of the grader's own call is no verdict on the solution either.
    if reply.status in (CallStatus.INFRA_FAULT, CallStatus.REJECTED):
        raise GradingFault(f"unit tests were not run: {reply.status}: {reply.cause}")
    return run.passed(reply.record)


async def ungraded(evidence: Evidence, call: CallTool, /) -> Reward:
    """For a conversation or a demonstration, which nobody pays."""
    return Reward({}, success=False)
