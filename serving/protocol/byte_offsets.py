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
        self._start = 0  # where it stands in the text
        self._measured = 0  # how many of its characters are counted in
        self._beyond = 0  # bytes up to there, beyond one a character

    def feed(self, chunk: str, start: int) -> None:
        """The next chunk, and the character at which it starts. Chunks of ASCII may be left out."""
        self(self._start + len(self._chunk))
        self._chunk, self._start, self._measured = chunk, start, 0

    def __call__(self, at: int) -> int:
        """The byte offset of the character offset ``at``."""
        within = min(at - self._start, len(self._chunk))
        if within > self._measured:
            passed = self._chunk[self._measured : within]
            self._beyond += byte_offset(passed, len(passed)) - len(passed)
            self._measured = within
        return at + self._beyond
