"""Several processes of one run, as ``accelerate launch`` or ``torchrun`` start them: which one this is, and what they
tell each other.

Invariants: alone, nothing here communicates; what decides whether all go on is decided by all alike, so that none waits
for one that left; nobody waits longer than ``WAIT``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from callwright.serving.errors import CallwrightError

Value = TypeVar("Value")
WAIT = timedelta(hours=1)
"""Of one process for the others: an evaluation, or the start of a server, is the work of one."""


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def here() -> int:
    """How many of them are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", count())) if count() > 1 else 1


def is_first() -> bool:
    """Whether this is the one that writes the run's record."""
    return rank() == 0


def gathered(values: Sequence[Value]) -> list[Value]:
    """The values of all processes, in the order of their ranks."""
    if count() == 1:
        return list(values)
    from accelerate.utils import gather_object

    _joined()
    return list(gather_object(list(values)))


def any_of(answer: bool) -> bool:
    """Whether any process says yes."""
    return any(gathered([answer]))


def told_by_first(work: Callable[[], Value]) -> Value:
    """What ``work`` gives in the first process, which alone does it; its UserError or RunError is raised in all."""
    if count() == 1:
        return work()
    from accelerate.utils import broadcast_object_list

    _joined()
    told: list[Any] = [None, None]
    if is_first():
        try:
            told[0] = work()
        except CallwrightError as error:
            told[1] = error
    broadcast_object_list(told)
    if told[1] is not None:
        raise told[1]
    value: Value = told[0]
    return value


def first_before_the_others() -> AbstractContextManager[None]:
    """The first process runs the block, then the others, who find what it left."""
    if count() == 1:
        return nullcontext()
    first: AbstractContextManager[None] = _joined().main_process_first()
    return first


def _joined() -> Any:
    """This process as one of the group, which the first call makes."""
    import torch
    from accelerate import PartialState

    # Without a GPU accelerate takes a process for alone unless it is told so.
    return PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT)
