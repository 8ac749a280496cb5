"""A retrieval server of Search-R1's shape: one list of passages a query, the title in a passage's first line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.backends.base import AnswerError, Ask, Backend, text


def _ask(query: str, k: int) -> Ask:
    return Ask("/retrieve", body={"queries": [query], "topk": k, "return_scores": True})


def _read(answer: Any) -> Sequence[Document]:
    lists = answer.get("result") if isinstance(answer, Mapping) else None
    if not isinstance(lists, list) or len(lists) != 1 or not isinstance(lists[0], list):
        raise AnswerError("no result with one list for the one query")
    return [_document(entry) for entry in lists[0]]


def _document(entry: Any) -> Document:
    """Servers that give no scores leave out the object around the passage."""
    passage = entry.get("document", entry) if isinstance(entry, Mapping) else None
    if not isinstance(passage, Mapping) or not isinstance(passage.get("contents"), str):
        raise AnswerError("a passage without contents")
    title, _, content = passage["contents"].partition("\n")
    return Document(title.strip('" '), content, text(passage, "url"))


RETRIEVER = Backend("retriever", _ask, _read, usual_port=8000)
