"""The runbook speaks of messages, codes and metrics that exist, and of every warning and failure that there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from callwright.training.sections.alarms import AlarmName

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for room in ("serving", "envs", "training", "scripts")
    for path in (ROOT / room).rglob("*.py")
)


def first_cells(head: str) -> list[str]:
    """The code in the first column of every table that begins with ``head``."""
    cells: list[str] = []
    for table in re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", RUNBOOK, re.MULTILINE):
        for line in table.splitlines():
            cells += re.findall(r"`([^`]+)`", line.split("|")[1])
    return cells


# What ends a run or a call through no fault of the policy, beside what is logged as a warning.
FAILURES = {
    *("RunError", "BrokerError", "LeaseLost", "EngineError", "ExecutorUnavailable", "GradingFault", "SandboxError"),
    "log.warning",
}
HOLE = "…"


def told() -> Iterator[tuple[str, str]]:
    """(where, message) of every warning and failure in the sources, with a hole for what is filled in."""
    for room in ("serving", "envs", "training", "scripts"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in FAILURES:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", message_of(node.args[0])


def message_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return re.sub(r"%[-.\d]*[sdrgf]", HOLE, str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(message_of(part) for part in node.values)
    return HOLE


def in_the_runbook(message: str) -> bool:
    def speaks_of(entry: str) -> bool:
        return re.search(".*".join(map(re.escape, entry.split(HOLE))), message) is not None

    return any(map(speaks_of, first_cells("message")))


def test_the_tables_are_found() -> None:
    assert len(first_cells("message")) > 20
    assert len(first_cells("metric")) == 8


@pytest.mark.parametrize("message", first_cells("message"))
def test_a_message_is_in_the_code(message: str) -> None:
    for part in message.split("…"):
        assert part.strip() in SOURCES, part


def test_every_warning_and_failure_is_in_the_runbook() -> None:
    # What has less than two words of its own is another message passed on.
    messages = {where: text for where, text in told() if len(re.findall(r"[A-Za-z]{2,}", text)) > 1}
    assert len(messages) > 50
    assert {where: text for where, text in messages.items() if not in_the_runbook(text)} == {}


@pytest.mark.parametrize("code", first_cells("code of a dead letter"))
def test_a_code_is_in_the_code(code: str) -> None:
    assert f'"{code}"' in SOURCES


@pytest.mark.parametrize("metric", first_cells("metric"))
def test_a_metric_is_in_the_code(metric: str) -> None:
    name = metric.removeprefix("callwright_worker_").removesuffix("_total")
    assert f'"{name}"' in SOURCES


def test_every_alarm_has_its_entry() -> None:
    assert first_cells("alarm") == list(get_args(AlarmName))
