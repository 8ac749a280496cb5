"""Tavily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.backends.base import Ask, Backend, rows, text


def _ask(query: str, k: int) -> Ask:
    return Ask("/search", body={"query": query, "max_results": k})


def _read(answer: Any) -> Sequence[Document]:
    return [Document(text(row, "title"), text(row, "content"), text(row, "url")) for row in rows(answer, "results")]


TAVILY = Backend(
    "tavily",
    _ask,
    _read,
    url="https://api.tavily.com",
    key_env="TAVILY_API_KEY",
    key_header="Authorization",
    key_prefix="Bearer ",
    query_chars=400,
)
