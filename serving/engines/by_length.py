"""Rows in order of length, so that a decode step does not read every row as far as the longest one reaches.

A decode step of a small model is mostly reading keys and values, and rows of one pass are all read to the same span.
Rows stand in bands of like length, short ones first; each band may be a pass of its own. Invariants: bands stand
together, in order, from row 0 on; to enter or leave moves at most one row a band.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SHORTEST = 64  # the first band holds contexts up to here, each further one up to twice as long
# Positions read for nothing that cost about as much as one more pass. Both grow with a model's layers, so the one
# figure serves small models and large ones.
WASTE = 8192


class ByLength:
    """Bands over the rows ``[0, settled)``. The caller moves rows: each swap it is told exchanges two of them."""

    def __init__(self, context: int) -> None:
        self._counts = [0] * (band_of(context) + 1)

    @property
    def settled(self) -> int:
        """Rows that stand in bands."""
        return sum(self._counts)

    def enter(self, length: int) -> Iterator[tuple[int, int]]:
        """Swaps that bring the row just behind the bands to its place."""
        band = band_of(length)
        at = self.settled
        for other in range(len(self._counts) - 1, band, -1):
            first = at - self._counts[other]
            if first != at:
                yield first, at
            at = first
        self._counts[band] += 1

    def leave(self, row: int) -> Iterator[tuple[int, int]]:
        """Swaps that bring a row just behind the bands."""
        band, end = 0, self._counts[0]
        while row >= end:
            band += 1
            end += self._counts[band]
        at = row
        for other in range(band, len(self._counts)):
            end = sum(self._counts[: other + 1])
            if at != end - 1:
                yield at, end - 1
            at = end - 1
        self._counts[band] -= 1

    def passes(self, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """(first row, rows) of every pass over the rows of these lengths: neighbours that waste little are joined."""
        joined: list[tuple[int, int, int]] = []  # first, rows, span
        first = 0
        for count in self._counts:
            if not count:
                continue
            span = int(max(lengths[first : first + count]))
            if joined:
                start, rows, before = joined[-1]
                shorter = rows if span >= before else count
                if shorter * abs(span - before) < WASTE:
                    joined[-1] = (start, rows + count, max(span, before))
                    first += count
                    continue
            joined.append((first, count, span))
            first += count
        return [(start, rows) for start, rows, _ in joined]


def band_of(length: int) -> int:
    """The band of a context of ``length`` positions."""
    return ((length - 1) // SHORTEST).bit_length() if length > 0 else 0
