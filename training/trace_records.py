"""One rollout as the object that a trace file holds; the fields are those of ``callwright.envs.traces``."""

from __future__ import annotations

import json
from typing import Any

from callwright.envs.rollout_record import Rollout
from callwright.envs.trajectory import Sampled, Segment
from callwright.serving.engines.codec import Codec


def trace_record(
    rollout: Rollout,
    codec: Codec,
    *,
    step: int | None = None,
    advantage: float | None = None,
    counted: float | None = None,
) -> dict[str, Any]:
    """Everything needed to read, re-score or re-train on the rollout later. ``counted`` is what its group saw.

    Of a model that is known by its text alone, segments have their text and no ids.
    """
    reward = rollout.reward
    return {
        "key": rollout.task.key,
        "family": rollout.task.family,
        "outcome": str(rollout.outcome),
        "step": step,
        "sample": rollout.sample,
        "slice": rollout.task.slice,
        "question": rollout.task.question,
        "answer": rollout.task.answer,
        "plan": [{"tool": step.tool, "arguments": dict(step.arguments)} for step in rollout.task.plan],
        "solution": rollout.solution,
        "cause": rollout.trajectory.cause,
        "success": rollout.success,
        "reward": None if reward is None else {"parts": dict(reward.parts), "total": reward.total},
        "counted": counted,
        "advantage": advantage,
        "seconds": rollout.seconds,
        "tool_seconds": rollout.tool_seconds,
        "segments": [_segment(segment, codec) for segment in rollout.trajectory.segments],
        "calls": [
            {
                "tool": call.tool,
                "arguments": {k: v for k, v in json.loads(call.body).items() if k != "type"},
                "status": str(call.status),
                "cause": call.cause,
                "seconds": call.seconds,
                "record": call.record,
            }
            for call in rollout.calls
        ],
        "rejections": [
            {"code": str(r.code), "message": r.message, "offset": r.offset, "tool": r.tool, "raw": r.raw}
            for r in rollout.rejections
        ],
        "violations": rollout.violations,
        "events": [event.to_dict() for event in rollout.events],
    }


def _segment(segment: Segment, codec: Codec) -> dict[str, Any]:
    sampled = isinstance(segment, Sampled)
    record: dict[str, Any] = {"kind": "sampled" if sampled else "given", "text": codec.decode(segment.ids)}
    if codec.exact:
        record["ids"] = list(segment.ids)
        if isinstance(segment, Sampled):
            record |= {"logprobs": list(segment.logprobs), "version": segment.version}
    return record
