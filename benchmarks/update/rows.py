"""The batch that both sides train on: groups of multi-turn rollouts with a tool, from ``benchmarks.replay.scripts``.

Invariant: a batch depends on the model's tokenizer, the number of groups and the number of turns alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.replay.scripts import GROUP, RESULT, Script, make_scripts
from callwright.serving.engines.codec import Codec


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout. ``mask`` is 1 where the policy sampled."""

    prompt: list[int]
    ids: list[int]
    mask: list[int]
    reward: float


def make_rows(codec: Codec, groups: int, turns: int) -> list[Row]:
    """``groups`` groups of ``GROUP`` rollouts, each cut to its first ``turns`` turns."""
    result = codec.wrapped("<tool_result>", f"[web-result] {RESULT}", "</tool_result>\n")
    rng = random.Random(0)
    scripts = make_scripts(codec, groups * GROUP)
    return [_row(codec, script, result, turns, float(rng.random() < 0.5)) for script in scripts]


def _row(codec: Codec, script: Script, result: Sequence[int], turns: int, reward: float) -> Row:
    ids: list[int] = []
    mask: list[int] = []
    for index, turn in enumerate(script.turns[:turns]):
        given = list(result) if index else []
        ids += [*given, *turn]
        mask += [0] * len(given) + [1] * len(turn)
    return Row(codec.prompt([{"role": "user", "content": script.question}]), ids, mask, reward)
