"""Several processes of one run, as ``accelerate launch`` or ``torchrun`` start them: which one this is, and what they
tell each other.

Invariants: alone, nothing here communicates; what decides whether all go on is decided by all alike, so that none waits
for one that left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

Value = TypeVar("Value")


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def is_first() -> bool:
    """Whether this is the one that writes the run's record."""
    return rank() == 0


def gathered(values: Sequence[Value]) -> list[Value]:
    """The values of all processes, in the order of their ranks."""
    if count() == 1:
        return list(values)
    from accelerate.utils import gather_object

    return list(gather_object(list(values)))


def any_of(answer: bool) -> bool:
    """Whether any process says yes."""
    return any(gathered([answer]))


def first_before_the_others() -> AbstractContextManager[None]:
    """The first process runs the block, then the others, who find what it left."""
    if count() == 1:
        return nullcontext()
    from accelerate import PartialState

    first: AbstractContextManager[None] = PartialState().main_process_first()
    return first
