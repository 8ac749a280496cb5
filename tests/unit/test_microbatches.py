"""Repacking keeps every row as it was, less the padding that its micro-batch does not need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.training.microbatches import by_length, repack

pytestmark = pytest.mark.unit

Lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=4, max_size=12).filter(
    lambda rows: len(rows) % 2 == 0
)


def batch_of(lengths: list[tuple[int, int]], first: int) -> dict[str, Any]:
    """Rows whose tokens are unique, prompts padded left to 8, completions right to 11."""
    rows = len(lengths)
    batch: dict[str, Any] = {
        "prompt_ids": torch.zeros(rows, 8, dtype=torch.long),
        "prompt_mask": torch.zeros(rows, 8, dtype=torch.long),
        "completion_ids": torch.zeros(rows, 11, dtype=torch.long),
        "completion_mask": torch.zeros(rows, 11, dtype=torch.long),
        "advantages": torch.arange(first, first + rows, dtype=torch.float),
        "num_items_in_batch": torch.tensor(7),
    }
    for row, (prompt, completion) in enumerate(lengths):
        name = 100 * (first + row)
        batch["prompt_ids"][row, 8 - prompt :] = torch.arange(name, name + prompt)
        batch["prompt_mask"][row, 8 - prompt :] = 1
        batch["completion_ids"][row, :completion] = torch.arange(name + 50, name + 50 + completion)
        batch["completion_mask"][row, :completion] = 1
    batch["old_per_token_logps"] = batch["completion_ids"].float() / 7
    return batch


def rows_of(batches: list[dict[str, Any]]) -> list[tuple[float, list[int], list[int], list[float]]]:
    """Each row's own values, without padding."""
    rows = []
    for batch in batches:
        for row in range(len(batch["advantages"])):
            prompt, completion = batch["prompt_mask"][row].bool(), batch["completion_mask"][row].bool()
            ids = batch["prompt_ids"][row][prompt].tolist(), batch["completion_ids"][row][completion].tolist()
            rows.append((float(batch["advantages"][row]), *ids, batch["old_per_token_logps"][row][completion].tolist()))
    return sorted(rows)


@settings(deadline=None)
@given(Lengths, st.booleans())
def test_rows_survive_and_padding_goes(lengths: list[tuple[int, int]], sort: bool) -> None:
    half = len(lengths) // 2
    before = [batch_of(lengths[:half], 1), batch_of(lengths[half:], 1 + half)]
    after = repack(before, by_length if sort else None)

    assert rows_of(after) == rows_of(before)
    assert [len(batch["advantages"]) for batch in after] == [half, half]
    for batch in after:
        assert int(batch["num_items_in_batch"]) == 7
        assert batch["prompt_mask"].any(0).all()  # no column is padding alone
        assert batch["completion_mask"].any(0).all()
    if sort:
        longest = [int((b["prompt_mask"].sum(1) + b["completion_mask"].sum(1)).max()) for b in after]
        assert longest == sorted(longest)
