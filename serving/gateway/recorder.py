"""The record of what was served: each conversation a trace that ``callwright trace`` reads, and its events.

Invariants: a trace is the exact ids in order, sampled ones with logprobs and version; its file is whole at any moment;
writing happens in one thread, in order, and never holds up a reply.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Completion
from callwright.serving.errors import UserError
from callwright.serving.gateway.history import Segment
from callwright.serving.progress import log
from callwright.serving.protocol import Event
from callwright.serving.store import EventStore

SCHEMA = 1  # of a trace line, see callwright.envs.traces; a test reads what is written here with its reader


@dataclass(frozen=True, slots=True)
class Record:
    """A conversation after one more turn. ``events`` are that turn's alone; a whole turn has no ``outcome``."""

    conversation: str
    number: int
    segments: tuple[Segment, ...]
    events: list[Event]
    outcome: str | None
    cause: str
    model: str


class Recorder:
    """Writes ``FOLDER/traces/CONVERSATION.jsonl`` and ``FOLDER/events.sqlite``."""

    def __init__(self, folder: Path, codec: Codec) -> None:
        self._codec = codec
        self._traces = folder / "traces"
        try:
            self._traces.mkdir(parents=True, exist_ok=True)
            self._store = EventStore(folder / "events.sqlite")
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"serve.record={folder}: {getattr(error, 'strerror', None) or error}") from None
        self._thread = ThreadPoolExecutor(1, "callwright-recorder")

    def write(self, record: Record) -> None:
        """Returns at once; a failure to write is logged, for the client has its answer already."""
        try:
            self._thread.submit(self._write, record)
        except RuntimeError:  # a reply that was still being cut off when the server closed its record
            log(f"gateway: the record of {record.conversation} was closed before its last turn")

    def close(self) -> None:
        """Wait until everything is on disk."""
        self._thread.shutdown(wait=True)
        self._store.close()

    def _write(self, record: Record) -> None:
        try:
            self._store.append(record.conversation, record.events)
            stored = self._store.replay(record.conversation)
            line = {
                "schema": SCHEMA,
                "key": f"gateway/{record.conversation}",
                "family": "gateway",
                "outcome": record.outcome,
                "cause": record.cause,
                "turns": record.number,
                "model": record.model,
                "segments": [part for segment in record.segments for part in self._written(segment)],
                "events": [found.event.to_dict() for found in stored],
            }
            target = self._traces / f"{record.conversation}.jsonl"
            partial = target.with_suffix(".partial")
            partial.write_text(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")
            os.replace(partial, target)
        except Exception as error:
            log(f"gateway: the record of {record.conversation} was not written: {type(error).__name__}: {error}")

    def _written(self, segment: Segment) -> Iterator[dict[str, Any]]:
        if not isinstance(segment, Completion):
            yield {"kind": "given", "text": self._codec.decode(segment), "ids": list(segment)}
            return
        for ids, logprobs, version in segment.spans():
            columns = {"ids": list(ids), "logprobs": list(logprobs), "version": version}
            yield {"kind": "sampled", "text": self._codec.decode(ids), **columns}
