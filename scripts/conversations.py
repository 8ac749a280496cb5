"""``callwright trace STORE``: the conversations of an event store, listed, replayed or exported.

Invariant: the store is opened to be read alone, so another process may go on writing to it.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from callwright.scripts.common import write_json
from callwright.scripts.terminal import plain
from callwright.serving.errors import UserError
from callwright.serving.protocol import EventType
from callwright.serving.store import EventStore, StoredEvent

_STREAMED = (EventType.THINK, EventType.RESPOND)  # they come in pieces
_ASKED = 60  # characters of a question in the list


def show(path: Path, conversation: str | None, export: Path | None, limit: int, json_file: Path | None) -> None:
    """List the newest ``limit`` conversations, or replay one; ``export`` writes events as JSON lines instead.

    Raises UserError for a file that is no store, and a conversation that is not in it.
    """
    with _opened(path) as store:
        if conversation is not None and not store.replay(conversation):
            raise UserError(f"{path} has no conversation {conversation}: callwright trace {path} lists them")
        if export is not None:
            with _target(export) as file:
                lines = store.export(file, None if conversation is None else [conversation])
            print(f"{lines} events in {export}", file=sys.stderr)
        elif conversation is not None:
            _replay(path, conversation, store.replay(conversation), json_file)
        else:
            _list(path, store, limit, json_file)


@contextmanager
def _opened(path: Path) -> Iterator[EventStore]:
    try:
        with EventStore(path, read_only=True) as store:
            yield store
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path} is no event store: {error}") from None


@contextmanager
def _target(export: Path) -> Iterator[TextIO]:
    if str(export) == "-":
        yield sys.stdout
        return
    try:
        with export.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"--export {export}: {error.strerror}") from None


def _list(path: Path, store: EventStore, limit: int, json_file: Path | None) -> None:
    found = store.conversations()
    shown = found[-limit:]
    rows = [{"name": c.name, "events": c.events, "started": c.started, "changed": c.changed} for c in shown]
    write_json(json_file, {"store": str(path), "total": len(found), "conversations": rows})
    if str(json_file) == "-":
        return
    console = Console(soft_wrap=True, highlight=False)
    for one in shown:
        asked = next((row.event.content for row in store.replay(one.name) if row.event.type is EventType.USER), "")
        line = Text(plain(one.name), style="bold")
        line.append(f"  {_when(one.started)}  {one.events} events  ", style="not bold dim")
        console.print(line.append(plain(asked[:_ASKED]).replace("\n", " "), style="not bold"))
    console.print(f"{len(shown)} of {len(found)} conversations")


def _replay(path: Path, conversation: str, rows: list[StoredEvent], json_file: Path | None) -> None:
    events = [row.to_dict() for row in rows]
    write_json(json_file, {"store": str(path), "conversation": conversation, "events": events})
    if str(json_file) == "-":
        return
    console = Console(soft_wrap=True, highlight=False)
    for kind, text in _joined(rows):
        for line in plain(text).split("\n"):
            console.print(Text(f"  {kind:<9} │ ", style="dim").append(line))


def _joined(rows: Iterable[StoredEvent]) -> Iterator[tuple[str, str]]:
    """Type and text of each event, the pieces of a stream as one."""
    kind, text = "", ""
    for event in (row.event for row in rows):
        said = event.content or ("" if event.payload is None else json.dumps(dict(event.payload)))
        if str(event.type) == kind and event.type in _STREAMED:
            text += event.content
            continue
        if kind:
            yield kind, text
        kind, text = str(event.type), said
    if kind:
        yield kind, text


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
