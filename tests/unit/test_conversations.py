"""The conversations of an event store from the command line: listed, replayed, exported, and never changed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from callwright.scripts import cli
from callwright.serving.protocol import Event, EventType
from callwright.serving.store import EventStore

pytestmark = pytest.mark.unit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.sqlite"
    with EventStore(path) as store:
        for name in ("one", "two\x1b[2J"):
            store.append(
                name,
                [
                    Event(EventType.USER, f"where is {name}?", timestamp=0.0),
                    Event(EventType.RESPOND, "let "),
                    Event(EventType.RESPOND, "me see \ud800"),
                    Event(EventType.CALL, '{"name":"web","args":{"q":"é","k":1}}'),
                    Event(EventType.METRIC, "", {"step": {"input": 1}}),
                ],
            )
    return path


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert cli.run(["trace", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_they_are_listed_and_no_escape_is_obeyed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, path).splitlines()
    assert lines == [
        "one  1970-01-01 00:00:00  5 events  where is one?",
        "two\\x1b[2J  1970-01-01 00:00:00  5 events  where is two\\x1b[2J?",
        "2 of 2 conversations",
    ]
    assert told(capsys, path, "--limit", "1").splitlines()[-1] == "1 of 2 conversations"
    listed = json.loads(told(capsys, path, "--json", "-"))
    assert [(one["name"], one["events"]) for one in listed["conversations"]] == [("one", 5), ("two\x1b[2J", 5)]


def test_one_is_replayed_in_order(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, path, "--conversation", "one").splitlines() == [
        "  user      │ where is one?",
        "  respond   │ let me see \\xd800",
        '  call      │ {"name":"web","args":{"q":"é","k":1}}',
        '  metric    │ {"step": {"input": 1}}',
    ]
    replayed = json.loads(told(capsys, path, "--conversation", "one", "--json", "-"))["events"]
    with EventStore(path) as store:
        assert replayed == [row.to_dict() for row in store.replay("one")]


def test_every_event_is_exported_as_a_line(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in told(capsys, path, "--export", "-").splitlines()]
    with EventStore(path) as store:
        names = [conversation.name for conversation in store.conversations()]
        assert rows == [row.to_dict() for name in names for row in store.replay(name)]
    assert told(capsys, path, "--conversation", "one", "--export", tmp_path / "one.jsonl") == ""
    lines = (tmp_path / "one.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [row for row in rows if row["conversation"] == "one"]


def test_what_is_not_there_is_one_line_and_nothing_is_made(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as foreign:
        foreign.execute("CREATE TABLE things (name TEXT)")
    foreign.close()
    before = other.read_bytes()
    for words, says in (
        ([path, "--conversation", "three"], "no conversation three"),
        ([other], "no event store"),
        ([path, "--export", tmp_path], "--export"),
    ):
        assert cli.run(["trace", *map(str, words)]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1
    assert other.read_bytes() == before


def test_a_store_that_is_being_written_to_can_be_read(path: Path) -> None:
    with EventStore(path) as writer, EventStore(path, read_only=True) as reader:
        writer.append("three", [Event(EventType.USER, "now?")])
        assert [row.event.content for row in reader.replay("three")] == ["now?"]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.append("three", [Event(EventType.USER, "no")])
