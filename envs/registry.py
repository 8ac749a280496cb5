"""Names and what they stand for: the shipped ones first, and those that modules of a user's own declare.

Invariant: a name is declared once. What is there is never replaced or taken away.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """``kind`` is what an entry is called where one is missing, such as ``task family``."""

    def __init__(self, kind: str, shipped: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(shipped)

    def add(self, declared: Mapping[str, T]) -> None:
        """Add entries, all or none. Raises ValueError for a name that is taken."""
        taken = [name for name in declared if name in self._entries]
        if taken:
            raise ValueError(f"there is a {self.kind} {taken[0]} already")
        self._entries.update(declared)

    def missing(self, name: str) -> str:
        """One line for a name that is not there: the nearest one, or all of them."""
        near = difflib.get_close_matches(name, self._entries, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._entries)}"
        return f"no {self.kind} {name}; {hint}"

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
