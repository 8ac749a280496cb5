"""docs/wires.md says what the tests show: its tests exist, and its table of pairs is the one that they hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_wires_matrix import EXPECTED

from callwright.serving.wires import WireFormat

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "wires.md").read_text(encoding="utf-8")
LETTERS = {"E": "extra", "N": "tool.name", "I": "call.id", "F": "result.status", "S": "call.signature"}


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    files = [*HERE.glob("test_wires*.py"), *HERE.parent.glob("integration/test_remote*.py")]
    there = {name for path in files for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)}
    assert named
    assert named - there == set()


def test_the_table_of_pairs_is_the_one_that_is_tested() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if " / " in line and line.startswith("|")]
    shown = {}
    for here, *cells in rows:
        for there, cell in zip(WireFormat, cells, strict=True):
            going, coming = ({LETTERS[letter] for letter in part.strip("-")} for part in cell.split(" / "))
            shown[here, str(there)] = (going, coming)
    assert shown == EXPECTED
