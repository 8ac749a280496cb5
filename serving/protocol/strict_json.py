"""Strict JSON: the one decoder of everything a model writes.

Invariants: no key occurs twice in an object; no NaN, no infinity (``1e999`` included), no lone surrogate; an integer
keeps every digit; nesting is bounded and the careful reader does not recurse, so no input raises anything but
``StrictJSONError``; every error carries the offset of its cause, in UTF-8 bytes.

A well-formed text takes the C decoder of the standard library. Whatever that refuses, or might accept too gladly, is
read again by ``_read``, which is the authority on what is valid and knows where each value stands.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.byte_offsets import ByteRuler, byte_offset
from callwright.serving.protocol.values import RejectionCode

MAX_DEPTH = 64
MAX_DIGITS = 4300  # Python converts no longer integer to text or back

Path = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t\n\r]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?P<real>(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)")
_PLAIN = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]*+')
SURROGATE = re.compile(r"[\ud800-\udfff]")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}
_NON_FINITE = ("NaN", "Infinity", "-Infinity")


class StrictJSONError(ValueError):
    """The text is not strict JSON: why (``code``, ``message``) and where (``offset``, in bytes)."""

    def __init__(self, code: RejectionCode, message: str, offset: int) -> None:
        super().__init__(f"{message} (byte {offset})")
        self.code = code
        self.message = message
        self.offset = offset


def decode(text: str) -> Any:
    """The value of one strict JSON text. Raises ``StrictJSONError`` and nothing else."""
    if _plain_enough(text):
        try:
            return _FAST.decode(text)
        except ValueError:
            pass  # the careful reader says why and where
    return _read(text, None)


def locate(text: str) -> dict[Path, int]:
    """The byte offset of every value of a strict JSON text, by path; ``()`` is the text's own value."""
    offsets: dict[Path, int] = {}
    _read(text, offsets)
    ruler = ByteRuler()
    ruler.feed(text, 0)
    return {path: ruler(at) for path, at in offsets.items()}  # in the order in which they stand


def _plain_enough(text: str) -> bool:
    """Whether the C decoder can be trusted: no surrogate can occur, and the nesting is surely within bounds."""
    return (
        text.count("{") + text.count("[") <= MAX_DEPTH
        and "\\ud" not in text
        and "\\uD" not in text
        and (text.isascii() or not SURROGATE.search(text))
    )


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("non-finite number")
    return value


_FAST = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


@dataclass(slots=True)
class _Frame:
    """One open object or array, and the key or index under which its next value goes."""

    container: dict[str, Any] | list[Any]
    key: str | int

    @property
    def closer(self) -> str:
        return "}" if isinstance(self.container, dict) else "]"

    def attach(self, value: Any) -> None:
        if isinstance(self.container, dict):
            self.container[str(self.key)] = value
        else:
            self.container.append(value)
            self.key = len(self.container)


def _read(text: str, offsets: dict[Path, int] | None) -> Any:
    """Read with an explicit stack; fill ``offsets`` when asked."""
    stack: list[_Frame] = []
    pos = _skip(text, 0)
    while True:  # a value starts at pos
        if offsets is not None:
            offsets[tuple(frame.key for frame in stack)] = pos
        value: Any
        if text[pos : pos + 1] in ("{", "["):
            if len(stack) == MAX_DEPTH:
                raise _refused(RejectionCode.TOO_LARGE, f"nested deeper than {MAX_DEPTH} levels", text, pos)
            frame = _Frame({}, "") if text[pos] == "{" else _Frame([], 0)
            pos = _skip(text, pos + 1)
            if text[pos : pos + 1] != frame.closer:
                stack.append(frame)
                pos = _key(text, pos, frame)
                continue
            value, pos = frame.container, pos + 1
        else:
            value, pos = _scalar(text, pos)
        while True:  # a value ended at pos
            pos = _skip(text, pos)
            if not stack:
                if pos != len(text):
                    raise _malformed("there is more text after the JSON value", text, pos)
                return value
            frame = stack[-1]
            frame.attach(value)
            mark = text[pos : pos + 1]
            if mark == ",":
                pos = _key(text, _skip(text, pos + 1), frame)
                break
            if mark != frame.closer:
                raise _unexpected(text, pos, f'"," or "{frame.closer}"')
            stack.pop()
            value, pos = frame.container, pos + 1


def _key(text: str, pos: int, frame: _Frame) -> int:
    """In an object, read the next key and its colon into the frame; the offset where the value starts."""
    if isinstance(frame.container, list):
        return pos
    if text[pos : pos + 1] != '"':
        raise _unexpected(text, pos, "a key in double quotes")
    key, end = _string(text, pos)
    if key in frame.container:
        raise _refused(RejectionCode.DUPLICATE_KEY, f"the key {json.dumps(key)[:80]} occurs twice", text, pos)
    frame.key = key
    end = _skip(text, end)
    if text[end : end + 1] != ":":
        raise _unexpected(text, end, '":"')
    return _skip(text, end + 1)


def _scalar(text: str, pos: int) -> tuple[Any, int]:
    if text[pos : pos + 1] == '"':
        return _string(text, pos)
    number = _NUMBER.match(text, pos)
    if number:
        return _number(number), number.end()
    for word, value in _WORDS.items():
        if text.startswith(word, pos):
            return value, pos + len(word)
    for word in _NON_FINITE:
        if text.startswith(word, pos):
            raise _refused(RejectionCode.NON_FINITE_NUMBER, f"{word} is not JSON", text, pos)
    raise _unexpected(text, pos, "a JSON value")


def _number(match: re.Match[str]) -> int | float:
    if match["real"]:
        value = float(match[0])
        if not math.isfinite(value):
            raise _refused(RejectionCode.NON_FINITE_NUMBER, "the number is too large", match.string, match.start())
        return value
    try:
        return int(match[0])
    except ValueError:
        message = f"the integer has more than {MAX_DIGITS} digits"
        raise _refused(RejectionCode.TOO_LARGE, message, match.string, match.start()) from None


def _string(text: str, start: int) -> tuple[str, int]:
    parts: list[str] = []
    pos = start + 1
    while True:
        plain = _PLAIN.match(text, pos)
        assert plain is not None  # the pattern matches the empty text
        parts.append(plain[0])
        pos = plain.end()
        char = text[pos : pos + 1]
        if char == '"':
            return "".join(parts), pos + 1
        if char == "":
            raise _malformed("the text ends inside a string", text, pos)
        if char != "\\":
            if char < " ":
                raise _malformed(f"a raw control character in a string: write {json.dumps(char)[1:-1]}", text, pos)
            raise _lone(text, pos)
        char, pos = _escape(text, pos)
        parts.append(char)


def _escape(text: str, pos: int) -> tuple[str, int]:
    """The character of the escape at ``pos``, and the offset after it."""
    letter = text[pos + 1 : pos + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], pos + 2
    high = _unit(text, pos)
    if high is None:
        raise _malformed("an unknown escape in a string", text, pos)
    if not 0xD800 <= high <= 0xDFFF:
        return chr(high), pos + 6
    low = _unit(text, pos + 6)
    if high > 0xDBFF or low is None or not 0xDC00 <= low <= 0xDFFF:
        raise _lone(text, pos)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)), pos + 12


def _unit(text: str, pos: int) -> int | None:
    """The UTF-16 unit of a ``\\uXXXX`` escape at ``pos``."""
    digits = _HEX4.match(text, pos + 2) if text.startswith("\\u", pos) else None
    return int(digits[0], 16) if digits else None


def _skip(text: str, pos: int) -> int:
    blank = _BLANK.match(text, pos)
    assert blank is not None  # the pattern matches the empty text
    return blank.end()


def _refused(code: RejectionCode, message: str, text: str, at: int) -> StrictJSONError:
    return StrictJSONError(code, message, byte_offset(text, at))


def _malformed(message: str, text: str, at: int) -> StrictJSONError:
    return _refused(RejectionCode.MALFORMED_JSON, message, text, at)


def _lone(text: str, at: int) -> StrictJSONError:
    return _refused(RejectionCode.LONE_SURROGATE, "half of a surrogate pair in a string", text, at)


def _unexpected(text: str, at: int, wanted: str) -> StrictJSONError:
    found = json.dumps(text[at]) if at < len(text) else "the end of the text"
    return _malformed(f"expected {wanted}, found {found}", text, at)
