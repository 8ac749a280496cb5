"""The one incremental marker scanner. Every dialect's text is cut into tokens here, whatever its chunks.

Invariants: the tokens of a text, with neighbouring text joined, do not depend on how it was cut; a text block closes
at its first closer, a structured block at its first closer outside a JSON string and outside a raw part; text leaves
at once but for a suffix that may still grow into a marker; no character is looked at more often than a marker is long,
so time is linear; a structured block keeps at most ``limit`` characters and overflows into one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache
from io import StringIO
from typing import NamedTuple

from callwright.serving.protocol.blocks import Block

BLOCK_LIMIT = 1 << 20  # characters of one open structured block

# The rest of a JSON string from any place outside an escape. It stops before the closing quote, or before a backslash
# whose escaped character has not arrived.
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class TokenKind(Enum):
    TEXT = auto()  # text outside every block (block None), or a piece of a text block
    OPEN = auto()  # a block's opener
    NESTED = auto()  # a structured block's opener inside a text block; the TEXT that holds it follows
    CLOSE = auto()  # a block's closer; text is the body of a structured block
    OVERFLOW = auto()  # a structured block passed the limit; text is its head. No CLOSE follows
    UNCLOSED = auto()  # the text ended inside a block; text is the body of a structured block


class Token(NamedTuple):
    """One token. ``offset`` is the character after it, but for OPEN and NESTED: where the marker starts."""

    kind: TokenKind
    block: Block | None
    text: str
    offset: int


class _Watch:
    """The markers that matter in one state, as one pattern, and the prefixes that must be held back for them."""

    def __init__(self, markers: Iterable[str], also: str = "") -> None:
        markers = tuple(markers)
        self.pattern = re.compile("|".join([*map(re.escape, markers), *also]) or r"(?!)")
        self._prefixes = frozenset(marker[:end] for marker in markers for end in range(1, len(marker)))
        self._longest = max(map(len, self._prefixes), default=0)

    def held_from(self, text: str, pos: int) -> int:
        """Where the suffix of ``text`` starts that may still become a marker (its length: there is none)."""
        start = text.rfind("<", pos)
        if start < 0 or len(text) - start > self._longest:
            return len(text)
        return start if text[start:] in self._prefixes else len(text)


class _Table:
    """What matters in each state, for one set of blocks."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.openers = {block.opener: block for block in blocks}
        calls = [block.opener for block in blocks if block.structured]
        self.watches: dict[str | None, _Watch] = {None: _Watch(self.openers)}  # by the opener of the open block
        self.raw: dict[str, _Watch] = {}  # by the opener of the raw part
        for block in blocks:
            if not block.structured:
                self.watches[block.opener] = _Watch([block.closer, *calls])
                continue
            self.watches[block.opener] = _Watch([block.closer, *(block.raw or ())[:1]], '"')
            if block.raw is not None:
                self.raw[block.raw[0]] = _Watch(block.raw[1:])


_table = lru_cache(64)(_Table)  # every turn takes a new scanner, nearly always for the same blocks


class Scanner:
    """Cuts one text, fed in chunks, into tokens."""

    def __init__(self, blocks: Sequence[Block], limit: int = BLOCK_LIMIT) -> None:
        self._table = _table(tuple(blocks))
        self._limit = limit
        self._block: Block | None = None
        self._structured = False  # whether the open block is
        self._watch = self._table.watches[None]
        self._held = ""  # the fed but undecided suffix
        self._base = 0  # the offset of its first character
        self._body = StringIO()  # of the open structured block
        self._size = 0
        self._in_string = False
        self._raw: _Watch | None = None  # what ends the open raw part
        self._tokens: list[Token] = []

    def feed(self, chunk: str) -> list[Token]:
        """The tokens that are certain now."""
        if not self._held:
            # Most chunks have nothing that matters in them, and there are very many.
            if not self._structured:
                if chunk and "<" not in chunk:
                    self._base += len(chunk)
                    return [Token(TokenKind.TEXT, self._block, chunk, self._base)]
            elif (
                '"' not in chunk
                and ("\\" if self._in_string else "<") not in chunk
                and len(chunk) <= self._limit - self._size
            ):
                self._size += len(chunk)
                self._base += len(chunk)
                self._body.write(chunk)
                return []
        text = self._held + chunk
        self._held = ""
        pos = 0
        while pos < len(text) and not self._held:
            if self._in_string:
                pos = self._read_string(text, pos)
            elif self._raw is not None:
                pos = self._read_raw(text, pos, self._raw)
            else:
                pos = self._read_outside(text, pos)
        self._base += pos
        return self._take()

    def finish(self) -> list[Token]:
        """The tokens of what was held back, and of the block that is still open. Nothing may be fed afterwards."""
        held, self._held = self._held, ""
        self._put(held, self._base)
        self._base += len(held)
        if self._block is not None and self._size <= self._limit:
            self._emit(TokenKind.UNCLOSED, self._block, self._body.getvalue(), self._base)
        return self._take()

    def _take(self) -> list[Token]:
        tokens, self._tokens = self._tokens, []
        return tokens

    def _emit(self, kind: TokenKind, block: Block | None, text: str, offset: int) -> None:
        self._tokens.append(Token(kind, block, text, offset))

    def _read_string(self, text: str, pos: int) -> int:
        """Consume the rest of a JSON string, as far as it has arrived."""
        rest = _STRING_REST.match(text, pos)
        assert rest is not None  # the pattern matches the empty text
        end = rest.end()
        if text[end : end + 1] == '"':
            self._in_string = False
            end += 1
        self._put(text[pos:end], self._base + pos)
        if self._in_string:
            self._held = text[end:]  # empty, or a backslash
        return end

    def _read_raw(self, text: str, pos: int, watch: _Watch) -> int:
        """Consume a raw part up to and including its closer, as far as it has arrived."""
        found = watch.pattern.search(text, pos)
        end = watch.held_from(text, pos) if found is None else found.end()
        self._put(text[pos:end], self._base + pos)
        if found is None:
            self._held = text[end:]
        else:
            self._raw = None
        return end

    def _read_outside(self, text: str, pos: int) -> int:
        """Consume up to and including the next thing that matters outside JSON strings and raw parts."""
        ahead = pos
        while (found := self._watch.pattern.search(text, ahead)) and self._nested(found[0]):
            self._emit(TokenKind.NESTED, self._table.openers[found[0]], found[0], self._base + found.start())
            ahead = found.end()
        if found is None:
            end = self._watch.held_from(text, ahead)
            self._put(text[pos:end], self._base + pos)
            self._held = text[end:]
            return end
        mark, start, end = found[0], found.start(), found.end()
        if mark == '"' or mark in self._table.raw:
            self._in_string = mark == '"'
            self._raw = self._table.raw.get(mark)
            self._put(text[pos:end], self._base + pos)
            return end
        self._put(text[pos:start], self._base + pos)
        if self._block is None:
            self._enter(self._table.openers[mark])
            self._emit(TokenKind.OPEN, self._block, mark, self._base + start)
        else:
            if self._size <= self._limit:
                self._emit(TokenKind.CLOSE, self._block, self._body.getvalue(), self._base + end)
            self._enter(None)
        return end

    def _nested(self, mark: str) -> bool:
        """Whether a mark found in the current state is a call's opener inside a text block."""
        return self._block is not None and not self._structured and mark != self._block.closer

    def _enter(self, block: Block | None) -> None:
        self._block = block
        self._structured = block is not None and block.structured
        self._watch = self._table.watches[None if block is None else block.opener]
        self._body = StringIO()
        self._size = 0

    def _put(self, text: str, offset: int) -> None:
        """Text of the current state that is certain: on its way at once, or into the body."""
        if not text:
            return
        if not self._structured:
            self._emit(TokenKind.TEXT, self._block, text, offset + len(text))
            return
        room = self._limit - self._size
        self._size += len(text)
        if len(text) <= room:
            self._body.write(text)
        elif room >= 0:
            # The character that breaks the limit ends the block's verdict; the rest is skipped up to the closer.
            self._body.write(text[:room])
            self._emit(TokenKind.OVERFLOW, self._block, self._body.getvalue(), offset + room + 1)
            self._body = StringIO()
