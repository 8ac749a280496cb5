"""Where a character stands in UTF-8 bytes: texts are read in characters, and places are told in bytes.

Invariants: no character is measured more than once for one place asked, so time is linear; half of a surrogate pair,
which has no UTF-8 form, counts the three bytes that it would take.
"""

from __future__ import annotations


def byte_offset(text: str, at: int) -> int:
    """The byte offset of the character offset ``at``."""
    return at if text.isascii() else len(text[:at].encode(errors="surrogatepass"))


class ByteRuler:
    """The same for a text that comes in chunks, asked for places that never go back.

    A place before the newest chunk is that of a marker that began there: only ASCII stands between the two.
    """

    def __init__(self) -> None:
        self._chunk = ""
        self._start = 0  # of the newest chunk, in characters
        self._measured = 0  # up to which character
        self._beyond = 0  # bytes up to there, beyond one a character

    def feed(self, chunk: str) -> None:
        """The next chunk."""
        end = self._start + len(self._chunk)
        self(end)
        self._chunk, self._start = chunk, end

    def __call__(self, at: int) -> int:
        """The byte offset of the character offset ``at``."""
        if at > self._measured:
            passed = self._chunk[self._measured - self._start : at - self._start]
            self._beyond += byte_offset(passed, len(passed)) - len(passed)
            self._measured = at
        return at + self._beyond
