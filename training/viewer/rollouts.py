"""One rollout as the page shows it: the trace without what it does not show, each token with its text."""

from __future__ import annotations

from typing import Any

from callwright.envs.traces import Trace
from callwright.training.viewer.tokens import TokenTexts

FIELDS = (
    *("key", "family", "outcome", "step", "sample", "slice", "question", "answer", "solution", "cause", "success"),
    *("reward", "advantage", "seconds", "tool_seconds", "calls", "rejections", "violations"),
)


def shown_rollout(trace: Trace, texts: TokenTexts) -> dict[str, Any]:
    """What the page needs of a rollout, as JSON values."""
    kept = {name: trace[name] for name in FIELDS if name in trace}
    return {**kept, "segments": [_segment(segment, texts) for segment in trace.get("segments", ())]}


def _segment(segment: dict[str, Any], texts: TokenTexts) -> dict[str, Any]:
    pieces = texts.pieces(segment["ids"], segment["text"])
    shown = {"kind": segment["kind"], "ids": segment["ids"]}
    if "version" in segment:
        shown["version"] = segment["version"]
    if "logprobs" in segment:
        shown["logprobs"] = [float(f"{value:.4g}") for value in segment["logprobs"]]
    return {**shown, "text": segment["text"]} if pieces is None else {**shown, "pieces": pieces}
