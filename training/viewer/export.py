"""The page as one file: every row, and as many whole rollouts as its limits allow.

Invariants: at most ``ROLLOUTS`` whole rollouts and ``BYTES`` in all. Which ones is a matter of the rows alone, so that
the same folder gives the same file; of two runs the same tasks are taken, so that they can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from callwright.serving.errors import UserError
from callwright.training.viewer.curves import curves
from callwright.training.viewer.index import COLUMNS, Row, TraceIndex
from callwright.training.viewer.page import labels, page, to_json
from callwright.training.viewer.rollouts import shown_rollout
from callwright.training.viewer.tokens import TokenTexts

ROLLOUTS = 500
BYTES = 20_000_000


def export(folders: Sequence[Path]) -> str:
    """The document for one run or two. Raises UserError for a folder without traces, or with too many rows."""
    indexes = [TraceIndex(folder) for folder in folders]
    texts = [TokenTexts(folder) for folder in folders]
    for index in indexes:
        index.refresh()
    runs = [
        {"name": name, "why_none": text.why_none, "rows": index.rows, "curves": curves(index.run)}
        for name, index, text in zip(labels(folders), indexes, texts, strict=True)
    ]
    data: dict[str, Any] = {"served": False, "columns": COLUMNS, "runs": [{**run, "rollouts": {}} for run in runs]}
    left = BYTES - len(page(data, served=False).encode())
    if left < 0:
        rows = sum(len(index.rows) for index in indexes)
        raise UserError(
            f"{rows} rows are more than {BYTES // 1_000_000} MB of page: leave out --html, which has no limit"
        )
    for count, (run, name) in enumerate(chosen([index.rows for index in indexes])):
        file, line = name
        rollout = shown_rollout(indexes[run].read(file, line), texts[run])
        left -= len(to_json(rollout)) + len(file) + 20
        if count >= ROLLOUTS or left < 0:
            break
        data["runs"][run]["rollouts"][f"{file}/{line}"] = rollout
    return page(data, served=False)


def chosen(runs: Sequence[Sequence[Row]]) -> Iterator[tuple[int, tuple[str, int]]]:
    """(run, (file, line)) of the rollouts to hold, best first: each way to end has its share, spread over the run."""
    where, outcome = COLUMNS.index("file"), COLUMNS.index("outcome")
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in runs[0]:
        kinds[row[outcome]].append(row)
    others = [{tuple(row[where : where + 2]) for row in rows} for rows in runs[1:]]
    for row in chain.from_iterable(zip_longest(*(_spread(rows) for rows in kinds.values()))):
        if row is not None:
            name = (row[where], row[where + 1])
            yield 0, name
            yield from ((run, name) for run, names in enumerate(others, 1) if name in names)


def _spread(rows: Sequence[Row]) -> Iterator[Row]:
    """All rows, each prefix about evenly spread: every 512th first, then those between."""
    seen: set[int] = set()
    stride = 512
    while stride:
        for place in range(0, len(rows), stride):
            if place not in seen:
                seen.add(place)
                yield rows[place]
        stride //= 2
