"""The computations that have to be executed: wordings, operands, the answer and the program that finds it.

Invariant: the answer is computed here directly and the program is what a solver would run; the gold check holds the two
against each other through the real executor.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from callwright.envs.tasks.family import Draw, Templates
from callwright.envs.tasks.modpow import PowerDials, modpow_program
from callwright.envs.tasks.world import LETTERS, Sizes, evenly, number, word

Kind = Literal["modpow", "hash_chain", "business_days", "grouped_sum", "string_permutation"]


class ComputeDials(PowerDials):
    """Which kinds, and how large their operands are (digits, letters or rows; one number, or several to draw from)."""

    kinds: tuple[Kind, ...] = Field(("modpow",), min_length=1)
    base_digits: Sizes = evenly(2)
    word_length: Sizes = evenly(4)
    rounds_digits: Sizes = evenly(2)
    days_digits: Sizes = evenly(2)
    rows: Sizes = evenly(6)
    value_digits: Sizes = evenly(2)


@dataclass(frozen=True, slots=True)
class Computation:
    """One drawn computation: the operands that fill a wording, the answer, the program, and wrong answers."""

    operands: tuple[object, ...]
    answer: str
    program: str
    guesses: tuple[str, ...]


def modpow(draw: Draw, dials: ComputeDials) -> Computation:
    """A power modulo a number."""
    base = number(draw.rng, draw.size(dials.base_digits))
    exponent, modulus = dials.exponent_and_modulus(draw)
    guesses = (str(number(draw.rng, len(str(modulus)))), str(base * exponent % modulus), str(base))
    answer = str(pow(base, exponent, modulus))
    return Computation((base, exponent, modulus), answer, modpow_program(base, exponent, modulus), guesses)


def hash_chain(draw: Draw, dials: ComputeDials) -> Computation:
    """SHA-256 of a word, then of the hexadecimal digest, and so on."""
    seed, rounds = word(draw.rng, draw.size(dials.word_length)), number(draw.rng, draw.size(dials.rounds_digits))
    digests = [seed]
    for _ in range(rounds):
        digests.append(hashlib.sha256(digests[-1].encode()).hexdigest())
    step = "lambda h,_:hashlib.sha256(h.encode()).hexdigest()"
    program = f'import hashlib,functools;print(functools.reduce({step},range({rounds}),"{seed}")[:6])'
    return Computation((seed, rounds), digests[-1][:6], program, (f"{draw.rng.getrandbits(24):06x}", digests[1][:6]))


def business_days(draw: Draw, dials: ComputeDials) -> Computation:
    """The date some working days (Monday to Friday, no holidays) after another."""
    start = datetime.date(2020, 1, 1) + datetime.timedelta(draw.rng.randrange(7000))
    days = number(draw.rng, draw.size(dials.days_digits))
    day, left = start, days
    while left:
        day += datetime.timedelta(1)
        left -= day.weekday() < 5
    later = f"(x:=d.date({start.year},{start.month},{start.day})+d.timedelta(i))"
    working = f"[x for i in range(1,{2 * days + 9}) if {later}.weekday()<5]"
    program = f"import datetime as d;print({working}[{days - 1}])"
    guesses = (str(start + datetime.timedelta(days)), str(day + datetime.timedelta(draw.rng.randrange(1, 9))))
    return Computation((days, start), str(day), program, guesses)


def grouped_sum(draw: Draw, dials: ComputeDials) -> Computation:
    """The sum of one group's values in a short table."""
    groups = draw.rng.sample(LETTERS, 3)
    size = draw.size(dials.rows)
    labels = [groups[row % 3] for row in range(size)]
    draw.rng.shuffle(labels)
    values = [number(draw.rng, draw.size(dials.value_digits)) for _ in labels]
    table = " ".join(f"{label}{value}" for label, value in zip(labels, values, strict=True))
    sums = {group: sum(v for label, v in zip(labels, values, strict=True) if label == group) for group in groups}
    program = f'print(sum(int(w[1:]) for w in "{table}".split() if w[0]=="{groups[0]}"))'
    answer = str(sums[groups[0]])
    return Computation((table, groups[0]), answer, program, (str(sums[groups[1]]), str(number(draw.rng, len(answer)))))


def string_permutation(draw: Draw, dials: ComputeDials) -> Computation:
    """A permutation of a word's letters, applied many times."""
    text = word(draw.rng, draw.size(dials.word_length))
    rounds = number(draw.rng, draw.size(dials.rounds_digits))
    order = draw.rng.sample(range(1, len(text) + 1), len(text))
    steps = [text]
    for _ in range(rounds):
        steps.append("".join(steps[-1][place - 1] for place in order))
    step = f'lambda s,_:"".join(s[i-1] for i in ({",".join(map(str, order))}))'
    program = f'import functools;print(functools.reduce({step},range({rounds}),"{text}"))'
    guesses = (steps[1], "".join(draw.rng.sample(text, len(text))))
    return Computation((text, " ".join(map(str, order)), rounds), steps[-1], program, guesses)


KINDS: Mapping[Kind, tuple[Templates, Callable[[Draw, ComputeDials], Computation]]] = {
    "modpow": (
        Templates(
            train=(
                "{} to the power {} modulo {}?",
                "what is {} to the power {} mod {}?",
                "find {} power {} modulo {}.",
                "{} power {} mod {}?",
                "what is {} power {}, modulo {}?",
                "find for me {} power {} mod {}.",
                "{} to the power {}, mod {}, is what?",
            ),
            held=("find {} to the power {} mod {}.",),
        ),
        modpow,
    ),
    "hash_chain": (
        Templates(
            train=(
                "sha256 of {}, chained {} times, first 6 digits?",
                "what are the first 6 digits of sha256 of {}, chained {} times?",
                "chain sha256 on {} for {} times, first 6 digits?",
            ),
            held=("first 6 digits of sha256 on {} for {} times?",),
        ),
        hash_chain,
    ),
    "business_days": (
        Templates(
            train=(
                "date {} business days after {}?",
                "what date is {} business days after {}?",
                "find the date {} business days after {}.",
            ),
            held=("what is the date {} business days after {}?",),
        ),
        business_days,
    ),
    "grouped_sum": (
        Templates(
            train=("{}: sum of {}?", "from {} find the sum of {}.", "in {} what is the sum of {}?"),
            held=("from {} what is the sum of {}?",),
        ),
        grouped_sum,
    ),
    "string_permutation": (
        Templates(
            train=(
                "{} in order {}, {} times over?",
                "put {} in order {}, {} times.",
                "what is {} in order {}, {} times?",
            ),
            held=("what is {} put in order {}, {} times over?",),
        ),
        string_permutation,
    ),
}
