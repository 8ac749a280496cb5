"""What a search service is to us: how it is asked, and how its answer is read. Data and two pure functions each.

Invariant: ``read`` takes any JSON value and gives documents or raises AnswerError; it never guesses at a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callwright.envs.executors.corpus import Document

QUERY_CHARS = 2048  # longer is no search, and no server takes it in an address


class AnswerError(Exception):
    """An answer of another shape than the service's own, or one that says that the search did not take place."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: GET ``path`` with ``params``, or, where there is a ``body``, POST it as JSON."""

    path: str
    params: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """One service. An empty ``url`` has to come from the config; an empty ``key_env`` means that it takes no key.

    Its limits on a query (characters, words; 0: none) are those beyond which it refuses one.
    """

    name: str
    ask: Callable[[str, int], Ask]
    read: Callable[[Any], Sequence[Document]]
    url: str = ""
    usual_port: int = 443
    key_env: str = ""
    key_header: str = ""
    key_prefix: str = ""
    query_chars: int = QUERY_CHARS
    query_words: int = 0
    on_403: str = ""

    def too_long(self, query: str) -> str:
        """What is wrong with the query's length, for the model to read; '' where nothing is."""
        if len(query) > self.query_chars:
            return f"the query has {len(query)} characters; at most {self.query_chars} can be searched"
        words = len(query.split())
        if self.query_words and words > self.query_words:
            return f"the query has {words} words; at most {self.query_words} can be searched"
        return ""


def rows(answer: Any, *path: str) -> list[Mapping[str, Any]]:
    """The list of objects at a path of keys. Raises AnswerError."""
    found = answer
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise AnswerError(f"no list of objects at {'.'.join(path)}")
    return found


def text(row: Mapping[str, Any], key: str) -> str:
    """The text at ``key``; '' where there is none, as services leave fields out at will."""
    found = row.get(key)
    return found if isinstance(found, str) else ""
