"""Another model's rollouts told again in this policy's tokens: traces for the supervised start, and for nothing else.

Invariants: only a clean success on a task of training is told; it is told by the one rollout function, with the turns
that were written as the script and the records that came back as the replies, so no tool runs again; what does not end
as it ended then is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import ungraded
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.traces import Trace
from callwright.envs.trajectory import Outcome
from callwright.serving.protocol import ToolCall, get_dialect
from callwright.serving.queues.reply import CallStatus, Reply
from callwright.training.experts import ScriptedEngine


async def retold(
    traces: Iterable[Trace], policy: Policy, budgets: Budgets, limit: int
) -> tuple[list[Rollout], Counter[str]]:
    """At most ``limit`` traces as rollouts of ``policy`` (its engine is not asked), and why others were left out."""
    told: list[Rollout] = []
    left_out: Counter[str] = Counter()
    for trace in traces:
        if len(told) == limit:
            break
        reason = _unfit(trace)
        if not reason:
            again = await _tell(trace, policy, budgets)
            if again is not None:
                told.append(again)
                continue
            reason = "in this dialect, tokenizer or budget it does not end as it did"
        left_out[reason] += 1
    return told, left_out


def _unfit(trace: Trace) -> str:
    """Why a trace teaches nothing; empty where it does."""
    if trace.get("slice") != "train":
        return "not a task of training"
    if not trace.get("success"):
        return "no success"
    if trace.get("rejections") or trace.get("violations"):
        return "a breach of the protocol"
    return ""


async def _tell(trace: Trace, policy: Policy, budgets: Budgets) -> Rollout | None:
    turns = _turns(trace, policy)
    if turns is None:
        return None
    replies = _Replies(trace.get("calls", ()))
    scripted = replace(policy, engine=ScriptedEngine(policy.codec, turns))
    task = Task(trace["key"], trace["family"], trace["question"], trace.get("answer", ""), slice="train")
    again = await rollout(task, scripted, replies.call, ungraded, budgets, key=0, session=trace["key"])
    same = again.outcome is Outcome.SCORED and again.solution == trace.get("solution") and replies.all_told
    return again if same else None


def _turns(trace: Trace, policy: Policy) -> list[str] | None:
    """What the other model wrote, turn by turn; None where it holds what only this tokenizer's frame may hold."""
    codec, markers = policy.codec, get_dialect(policy.dialect).markers(policy.tools)
    ends = [codec.decode([token]) for token in codec.eos]
    control = set(codec.tokenizer.get_added_vocab()).difference(markers)
    turns = []
    for segment in trace.get("segments", ()):
        if segment["kind"] == "sampled":
            text: str = segment["text"]
            for end in ends:  # the script ends its turns itself
                text = text.removesuffix(end)
            if any(token in text for token in control):
                return None
            turns.append(text)
    return turns


class _Replies:
    """The records of a trace, each given out once, in order, for the call that it answered."""

    def __init__(self, calls: Iterable[dict[str, Any]]) -> None:
        self._left = list(calls)

    @property
    def all_told(self) -> bool:
        return not self._left

    async def call(self, call: ToolCall) -> Reply:
        told = self._left.pop(0) if self._left else {}
        if (told.get("tool"), told.get("arguments")) != (call.name, call.arguments):
            return Reply(b"{}", CallStatus.INFRA_FAULT, "the trace holds no such call", 0.0, "trace")
        status = CallStatus(told["status"])
        return Reply(str(told["record"]).encode(), status, told.get("cause", ""), 0.0, "trace")
