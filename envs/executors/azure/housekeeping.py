"""The two commands of the environment itself: fill an episode's account before it begins, read it after it ends.

They travel as any other call does, because a record from the queue is what pays. Invariant: the model cannot use them.
Both carry a token that is fresh for every process and stands in nothing that a model reads; ``fill`` is taken only as
an episode's first command, and ``read`` only with the token that came with it.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Literal

from callwright.serving.protocol.tools import AZURE
from callwright.serving.protocol.values import ToolCall

_TOKEN = secrets.token_hex(16)
_COMMAND = re.compile(r"callwright (fill|read) ([0-9a-f]{32})(?: (.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """One such command as an executor reads it. ``seed`` is JSON, '' for read."""

    do: Literal["fill", "read"]
    token: str
    seed: str = ""


def fill_call(seed: str) -> ToolCall:
    """The call that puts ``seed`` into a fresh account."""
    return ToolCall(AZURE.name, {"azure_command": f"callwright fill {_TOKEN} {seed}"})


def read_call() -> ToolCall:
    """The call whose record's stdout tells all that the account holds."""
    return ToolCall(AZURE.name, {"azure_command": f"callwright read {_TOKEN}"})


def housekeeping(command: str) -> Housekeeping | None:
    """None for any other text."""
    match = _COMMAND.fullmatch(command)
    if match is None:
        return None
    do, token, seed = match.groups()
    return Housekeeping("fill" if do == "fill" else "read", token, seed or "")
