"""What a dialect's text is made of: blocks between an opening and a closing marker, each with one role.

Invariant: a marker starts with ``<`` and has no other ``<``, so at most one suffix of any text can grow into a marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Role(Enum):
    """What a block is for, in every dialect."""

    THINK = auto()  # the model's reasoning; nothing in it is run
    CALL = auto()  # JSON that becomes tool calls
    ANSWER = auto()  # the final answer
    RESULT = auto()  # what only the system may write


@dataclass(frozen=True, slots=True)
class Block:
    """One pair of markers. ``tool`` names the tool of a call block that belongs to one.

    ``raw`` are the markers of a part of a call's body that is plain text: nothing in it counts but its own closer.
    """

    name: str
    role: Role
    opener: str
    closer: str
    tool: str | None = None
    raw: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for marker in (self.opener, self.closer, *(self.raw or ())):
            if marker.rfind("<") != 0:
                raise ValueError(f"a marker starts with its only '<': {marker!r}")

    @property
    def structured(self) -> bool:
        """Whether the body is a call: its closer does not count in a string, and the body is delivered whole."""
        return self.role is Role.CALL
