"""Copying practice: the copy alone is learned, and no run of letters or digits is longer than the tasks' own."""

from __future__ import annotations

import re

import pytest

from callwright.envs.tasks.world import WorldSpec
from callwright.serving.models import Loaded
from callwright.training.practice import copying_rows

pytestmark = pytest.mark.unit

SPEC = WorldSpec(name_length={3: 5, 6: 1}, code_digits={1: 3, 4: 1})


def test_a_row_repeats_its_text_and_only_the_copy_is_learned(tiny: Loaded) -> None:
    for row in copying_rows(tiny.codec, SPEC, 30, "a"):
        learned = [token for token in row["labels"] if token != -100]
        assert row["input_ids"][-len(learned) :] == learned
        question, _, copy = tiny.codec.decode(row["input_ids"]).partition("<|assistant|>")
        text = copy.removeprefix("<solution>").removesuffix("</solution>")
        assert question == f"<|user|>repeat {text}"
        assert tiny.codec.decode(learned) == copy


def test_no_run_is_longer_than_the_tasks_own(tiny: Loaded) -> None:
    rows = copying_rows(tiny.codec, SPEC, 200, "a")
    text = " ".join(tiny.codec.decode(row["input_ids"]) for row in rows)
    assert max(map(len, re.findall(r"[A-Z]+", text))) == 6
    assert max(map(len, re.findall(r"\d+", text))) == 4


def test_rows_follow_their_seed(tiny: Loaded) -> None:
    assert copying_rows(tiny.codec, SPEC, 5, "a") == copying_rows(tiny.codec, SPEC, 5, "a")
    assert copying_rows(tiny.codec, SPEC, 5, "a") != copying_rows(tiny.codec, SPEC, 5, "b")
