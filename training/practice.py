"""Copying practice for a model that starts from nothing: a random text to repeat.

A small model that only ever copies short keys learns to count to the length of the longest; a long text can only be
copied by looking at what comes next. Invariant: no run of letters or digits here is longer than the tasks' own.
"""

from __future__ import annotations

import random

from callwright.envs.tasks.world import LETTERS, WorldSpec
from callwright.serving.engines.codec import Codec

WORDS = ("code", "owner", "power", "modulo", "mod", "times", "plus", "the", "of", "to", "find", "what", "is", "for")
MARKS = (" ", " ", " ", ". ", ", ", "? ", ": ")
PIECES = (4, 14)  # of one text: at least, at most
DIGITS = "0123456789"
AGAIN = 0.4  # chance of a symbol to be the one before it: in a run of equal symbols, what comes next says little


def copying_rows(codec: Codec, spec: WorldSpec, n: int, seed: object) -> list[dict[str, list[int]]]:
    """``n`` rows for SFTTrainer: ids, and labels that are -100 on the prompt."""
    rng = random.Random(f"copying|{seed}")
    return [_row(codec, _text(rng, spec)) for _ in range(n)]


def _row(codec: Codec, text: str) -> dict[str, list[int]]:
    prompt = codec.prompt([{"role": "user", "content": f"repeat {text}"}])
    copy = codec.wrapped("<solution>", text, "</solution>")
    return {"input_ids": [*prompt, *copy], "labels": [*([-100] * len(prompt)), *copy]}


def _text(rng: random.Random, spec: WorldSpec) -> str:
    pieces: list[str] = []
    for _ in range(rng.randint(*PIECES)):
        kind = rng.randrange(4)
        if kind == 0:
            pieces.append(rng.choice(WORDS))
        elif kind == 1:
            pieces.append(_run(rng, DIGITS, rng.randint(1, max(spec.code_digits))))
        else:
            pieces.append(_run(rng, LETTERS, rng.randint(2, max(spec.name_length))))
        pieces.append(rng.choice(MARKS))
    return "".join(pieces).strip()


def _run(rng: random.Random, symbols: str, length: int) -> str:
    run = [rng.choice(symbols)]
    while len(run) < length:
        run.append(run[-1] if rng.random() < AGAIN else rng.choice(symbols))
    return "".join(run)
