"""The runbook speaks of messages, codes and metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from callwright.training.sections.alarms import AlarmName

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for room in ("serving", "envs", "training") for path in (ROOT / room).rglob("*.py")
)


def first_cells(head: str) -> list[str]:
    """The code in the first column of every table that begins with ``head``."""
    cells: list[str] = []
    for table in re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", RUNBOOK, re.MULTILINE):
        for line in table.splitlines():
            cells += re.findall(r"`([^`]+)`", line.split("|")[1])
    return cells


def test_the_tables_are_found() -> None:
    assert len(first_cells("message")) > 20
    assert len(first_cells("metric")) == 8


@pytest.mark.parametrize("message", first_cells("message"))
def test_a_message_is_in_the_code(message: str) -> None:
    for part in message.split("…"):
        assert part.strip() in SOURCES, part


@pytest.mark.parametrize("code", first_cells("code of a dead letter"))
def test_a_code_is_in_the_code(code: str) -> None:
    assert f'"{code}"' in SOURCES


@pytest.mark.parametrize("metric", first_cells("metric"))
def test_a_metric_is_in_the_code(metric: str) -> None:
    name = metric.removeprefix("callwright_worker_").removesuffix("_total")
    assert f'"{name}"' in SOURCES


def test_every_alarm_has_its_entry() -> None:
    assert first_cells("alarm") == list(get_args(AlarmName))
