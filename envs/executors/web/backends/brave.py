"""Brave Search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.backends.base import Ask, Backend, rows, text
from callwright.envs.executors.web.page_text import text_of_html


def _ask(query: str, k: int) -> Ask:
    return Ask("/res/v1/web/search", params={"q": query, "count": str(k)})


def _read(answer: Any) -> Sequence[Document]:
    if isinstance(answer, Mapping) and answer.get("type") == "search" and "web" not in answer:
        return []  # so it says that nothing was found
    return [
        # Titles and descriptions mark the words that were found with tags.
        Document(text_of_html(text(row, "title")), text_of_html(text(row, "description")), text(row, "url"))
        for row in rows(answer, "web", "results")
    ]


BRAVE = Backend(
    "brave",
    _ask,
    _read,
    url="https://api.search.brave.com",
    key_env="BRAVE_API_KEY",
    key_header="X-Subscription-Token",
    query_chars=400,
    query_words=50,
)
