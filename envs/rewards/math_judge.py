"""math-verify in a process of its own: it parses what a model wrote, and some of that takes for ever or all memory."""

from __future__ import annotations

import logging

from callwright.envs.rewards.judge import Question, serve_questions


def verdict(question: Question) -> bool:
    """Whether ``said`` is one of ``accepted``; all are LaTeX."""
    from math_verify import parse, verify  # here alone: nothing of ours loads it

    # Its own time-outs are off: they need signals, and the deadline of the judge holds without them.
    said = parse(_boxed(question["said"]), parsing_timeout=None)
    return any(
        verify(parse(_boxed(gold), parsing_timeout=None), said, timeout_seconds=None) for gold in question["accepted"]
    )


def _boxed(text: str) -> str:
    # In a box the whole text is read, and not the last number of it alone.
    return rf"\boxed{{{text}}}"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    verdict({"said": "1", "accepted": ["1"]})  # the imports are not at the first question's expense
    serve_questions(verdict)
