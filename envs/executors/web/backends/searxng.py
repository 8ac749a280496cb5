"""SearXNG, a metasearch engine that people host themselves. It has no count: the first k of its page are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.backends.base import AnswerError, Ask, Backend, rows, text


def _ask(query: str, k: int) -> Ask:
    return Ask("/search", params={"q": query, "format": "json"})


def _read(answer: Any) -> Sequence[Document]:
    found = [Document(text(row, "title"), text(row, "content"), text(row, "url")) for row in rows(answer, "results")]
    # It answers 200 and nothing when every engine behind it has failed: that is no search without a hit.
    silent = answer.get("unresponsive_engines") if isinstance(answer, Mapping) else None
    if not found and silent:
        raise AnswerError(f"no engine answered: {silent}")
    return found


SEARXNG = Backend(
    "searxng",
    _ask,
    _read,
    usual_port=8080,
    on_403="it gives no JSON: add json to search.formats in its settings.yml",
)
