"""A document collection behind SQLite FTS5: the title weighs four times the text, words are stemmed.

Invariants: a query is words, never syntax (each token is quoted); documents that hold all the words answer, and only
where there is none do documents with some of them; the same collection and query give the same ranking (ties by order
of insertion). One instance serves one thread at a time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TITLE_WEIGHT = 4.0
CONTENT_CHARS = 3000  # of one result; the rest is cut
_TOKEN = re.compile(r"\w+")
_MAX_TOKENS = 64

_SCHEMA = "CREATE VIRTUAL TABLE documents USING fts5(title, content, url UNINDEXED, tokenize='porter unicode61')"
_SEARCH = f"""
    SELECT title, substr(content, 1, {CONTENT_CHARS}), url FROM documents WHERE documents MATCH ?
    ORDER BY bm25(documents, {TITLE_WEIGHT}, 1.0, 0.0), rowid LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Document:
    """One search result, or one document to index."""

    title: str
    content: str
    url: str = ""


class Corpus:
    """An open collection. ``Corpus.build(documents)`` in memory, ``Corpus.build(documents, path)`` in a file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def build(cls, documents: Iterable[Document | Sequence[str]], path: Path | None = None) -> Self:
        """Index ``documents`` (or (title, text) or (title, text, url) tuples). A file that is there is replaced."""
        if path is None:
            connection = _open(":memory:")
            _fill(connection, documents)
            return cls(connection)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.tmp")
        unfinished.unlink(missing_ok=True)
        connection = _open(str(unfinished))
        _fill(connection, documents)
        connection.close()
        unfinished.replace(path)  # a file of this name is always complete
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a collection that ``build`` made, for reading. Raises FileNotFoundError."""
        if not path.is_file():
            raise FileNotFoundError(f"no document collection at {path}")
        return cls(_open(f"{path.resolve().as_uri()}?mode=ro"))

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT count(*) FROM documents").fetchone()
        return int(count)

    def search(self, query: str, k: int) -> list[Document]:
        """The ``k`` best documents; none where the query holds no word or none matches."""
        tokens = [f'"{token}"' for token in _TOKEN.findall(query)[:_MAX_TOKENS]]
        if not tokens:
            return []
        for operator in (" AND ", " OR "):
            rows = self._connection.execute(_SEARCH, (operator.join(tokens), k)).fetchall()
            if rows:
                return [Document(*row) for row in rows]
        return []

    def close(self) -> None:
        self._connection.close()


def _open(where: str) -> sqlite3.Connection:
    # Used from the executor's one thread, built in another.
    return sqlite3.connect(where, uri=where.startswith("file:"), check_same_thread=False)


def _fill(connection: sqlite3.Connection, documents: Iterable[Document | Sequence[str]]) -> None:
    with connection:
        connection.execute(_SCHEMA)
        connection.executemany("INSERT INTO documents (title, content, url) VALUES (?, ?, ?)", map(_row, documents))
        connection.execute("INSERT INTO documents (documents) VALUES ('optimize')")


def _row(document: Document | Sequence[str]) -> tuple[str, str, str]:
    if isinstance(document, Document):
        return document.title, document.content, document.url
    title, content, *rest = document
    return title, content, rest[0] if rest else ""
