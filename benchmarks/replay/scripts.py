"""The scripts: what each rollout samples, turn by turn, and how long each of its calls takes.

Invariants: a script depends on the seed and its index alone; a turn has exactly its drawn number of tokens, because
the filler is digits and a digit is one token; a call's query names the rollout and the turn, so that a tool knows the
call's latency from its arguments on either side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callwright.serving.engines.codec import Codec
from callwright.serving.protocol import ToolCall, compact_json

Latency = Callable[[str], float]
"""Seconds that a call takes, by its query."""

GROUP = 8  # rollouts of one question, as in GRPO
CALLS = (1, 4)
TURN_TOKENS = (10, 60)
TAIL_MEDIAN_S, TAIL_SIGMA, TAIL_CAP_S = 0.2, 1.2, 5.0

QUESTION = (
    "Question {number}. In the list of people there is one person for each key. Look up the person with the key that "
    "belongs to the town in the second entry, then look up where that person works, and say how many people work at "
    "the same place. You can search the collection; each search gives the best documents for a query. Search as often "
    "as you need, one search at a time, and read what comes back before you search again. Then give the number and "
    "nothing else."
)
FIELDS: Mapping[str, Any] = {
    "results": [
        {
            "title": "the second entry",
            "content": "The person with this key works at the place in the north of the town, since the year 1987, "
            "together with 24 other people. The key of the place is K7Q2.",
        }
    ]
}
RESULT = compact_json(FIELDS)


@dataclass(frozen=True, slots=True)
class Script:
    """One rollout: ``turns`` are the ids it samples; ``tail`` is each call's heavy-tailed latency, by its query."""

    index: int
    question: str
    answer: str
    turns: tuple[tuple[int, ...], ...]
    tail: Mapping[str, float]

    @property
    def ids(self) -> tuple[int, ...]:
        """Everything it samples, one turn after another."""
        return tuple(i for turn in self.turns for i in turn)


@dataclass(frozen=True, slots=True)
class Batch:
    """A side's answer to one batch: wall seconds, the ids after each prompt, how many of them were sampled, and how
    many of the seconds were prefill (0 where the side does not say)."""

    seconds: float
    ids: list[list[int]]
    sampled: int
    prefill_seconds: float = 0.0

    @property
    def given(self) -> int:
        """Ids of results."""
        return sum(map(len, self.ids)) - self.sampled


def make_scripts(codec: Codec, count: int, seed: int = 0) -> list[Script]:
    """``count`` scripts, every ``GROUP`` of them with one question."""
    return [_script(codec, index, random.Random(f"{seed}/{index}")) for index in range(count)]


def _script(codec: Codec, index: int, rng: random.Random) -> Script:
    turns, tail = [], {}
    for turn in range(rng.randint(*CALLS)):
        query = _fill(codec, f"{index:03d}{turn}", rng.randint(*TURN_TOKENS), rng, _call)
        turns.append(tuple(codec.markers(_call(query))))
        tail[query] = min(TAIL_CAP_S, TAIL_MEDIAN_S * rng.lognormvariate(0.0, TAIL_SIGMA))
    answer = _fill(codec, "", rng.randint(*TURN_TOKENS), rng, _solution)
    turns.append(tuple(codec.markers(_solution(answer))))
    return Script(index, QUESTION.format(number=index // GROUP), answer, tuple(turns), tail)


def _call(query: str) -> str:
    return f"<web>{ToolCall('web', {'q': query, 'k': 3}).body().decode()}</web>"


def _solution(answer: str) -> str:
    return f"<solution>{answer}</solution>"


def _fill(codec: Codec, start: str, tokens: int, rng: random.Random, write: Any) -> str:
    """``start`` and as many random digits as make ``write`` of it ``tokens`` long (or as short as it can be)."""
    start = start or str(rng.randrange(10))
    missing = tokens - len(codec.markers(write(start)))
    return start + "".join(str(rng.randrange(10)) for _ in range(missing))
