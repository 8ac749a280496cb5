"""Serper, Google's results as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.backends.base import Ask, Backend, rows, text


def _ask(query: str, k: int) -> Ask:
    return Ask("/search", body={"q": query, "num": k})


def _read(answer: Any) -> Sequence[Document]:
    return [Document(text(row, "title"), text(row, "snippet"), text(row, "link")) for row in rows(answer, "organic")]


SERPER = Backend(
    "serper", _ask, _read, url="https://google.serper.dev", key_env="SERPER_API_KEY", key_header="X-API-KEY"
)
