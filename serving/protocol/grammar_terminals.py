"""The leaves of a decoding grammar: JSON strings and numbers, exactly as strict as the validator.

Invariant: every text of a leaf is one JSON value that the validator accepts for it. Completeness has bounds that
decoding never misses: an integer without bounds has at most 18 digits, and a string of bounded length starts with a
character that is not blank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any

DIGITS = 18  # of an integer without bounds
PLAIN = "plain-"  # before the name of a rule whose strings hold no ``<``
_SURROGATES = range(0xD800, 0xE000)
_HEX = "0123456789abcdef"


def literal(text: str) -> str:
    """A text as a terminal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@cache
def solid_text() -> str:
    """A character that is neither blank nor part of a marker."""
    return characters(lambda code: code <= 0x20 or code == 0x7F or chr(code).isspace() or chr(code) == "<")


@cache
def string_rules(prefix: str = "") -> Mapping[str, str]:
    """``solid`` and ``blank``: the characters of a JSON string that make it non-blank, and the others. With the prefix
    PLAIN there is no ``<`` among them."""
    angle = "<" if prefix == PLAIN else ""
    solid = characters(lambda code: code < 0x20 or chr(code).isspace() or chr(code) in f'"\\\\{angle}')
    blank = characters(lambda code: code < 0x20 or code == 0x85 or not chr(code).isspace())
    return {
        "hex": "[0-9a-fA-F]",
        "solid-code": _codes(lambda code: not chr(code).isspace() and code not in _SURROGATES),
        "blank-code": _codes(lambda code: chr(code).isspace()),
        "pair": r'[dD] [89abAB] hex hex "\\u" [dD] [c-fC-F] hex hex',
        f"{prefix}solid": f'{solid} | "\\\\" (["\\\\/b] | "u" (pair | solid-code))',
        "blank": f'{blank} | "\\\\" ([fnrt] | "u" blank-code)',
        f"{prefix}char": f"{prefix}solid | blank",
    }


def characters(excluded: Callable[[int], bool]) -> str:
    """The class of the other characters; those beyond 16 bits are taken as one. It is a positive class, for xgrammar
    excludes ASCII alone."""
    ranges: list[list[int]] = []
    for code in range(0x10001):
        if code in _SURROGATES or excluded(code):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    if ranges and ranges[-1][1] == 0x10000:
        ranges[-1][1] = 0x10FFFF
    return "[" + "".join(_char(low) + (f"-{_char(high)}" if high > low else "") for low, high in ranges) + "]"


def _char(code: int) -> str:
    """A character in a class, in the one spelling that both xgrammar and llguidance read."""
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if 0x1000 <= code < 0x10000 else chr(code)


def string(schema: Mapping[str, Any], prefix: str = "") -> str:
    """A JSON string of the schema's length; one with a minimum length is not blank."""
    char, solid = f"{prefix}char", f"{prefix}solid"
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    if most is not None and most < max(least, 0):
        raise ValueError("no string is as long as the schema asks")
    if most is None and least <= 1:
        body = f"blank* {solid} {char}*" if least else f"{char}*"
    elif least == 0:
        body = f"{char}{{0,{most}}}"
    else:
        rest = "" if most is None else most - 1
        body = solid if rest == 0 else f"{solid} {char}{{{least - 1},{rest}}}"
    return rf'"\"" {body} "\""'


def integer(schema: Mapping[str, Any]) -> str:
    """The integers between the schema's bounds."""
    ranges = list(_signed(schema, _range))
    if not ranges:
        raise ValueError("no integer lies between the schema's bounds")
    return " | ".join(ranges)


def number(schema: Mapping[str, Any]) -> str:
    """Integers, and fractions between two of them that the bounds allow; exponents where there are no bounds."""
    if "minimum" not in schema and "maximum" not in schema:
        return f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}}) ("." [0-9]{{1,16}})? ([eE] [-+]? [0-9]{{1,2}})?'

    def fractions(low: int, high: int) -> str:
        return f'({_range(low, high - 1)}) "." [0-9]{{1,15}}' if low < high else ""

    return " | ".join([integer(schema), *_signed(schema, fractions)])


def _signed(schema: Mapping[str, Any], expression: Callable[[int, int], str]) -> Iterator[str]:
    """``expression`` over the magnitudes of both signs; an empty one is left out."""
    bounds = [int(schema[key]) for key in ("minimum", "maximum") if key in schema]
    far = 10 ** max([DIGITS, *(len(str(abs(bound))) + 1 for bound in bounds)]) - 1
    low, high = math.ceil(schema.get("minimum", -far)), math.floor(schema.get("maximum", far))
    if low <= high and high >= 0 and (found := expression(max(low, 0), high)):
        yield found
    if low <= high and low < 0 and (found := expression(max(-high, 0), -low)):
        yield f'"-" ({found})'


def _range(low: int, high: int) -> str:
    """The decimal texts of the integers from ``low`` to ``high``, both at least 0."""
    parts = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        parts += _same_length(str(first), str(min(high, 10**length - 1)))
    return " | ".join(parts)


def _same_length(low: str, high: str) -> list[str]:
    rest = len(low) - 1
    if low == high:
        return [literal(low)]
    if not rest or (set(low[1:]) == {"0"} and set(high[1:]) == {"9"}):
        return [f"[{low[0]}-{high[0]}]{_digits(rest)}"]
    if low[0] == high[0]:
        return [f"{literal(low[0])} ({' | '.join(_same_length(low[1:], high[1:]))})"]
    parts = [f"{literal(low[0])} ({' | '.join(_same_length(low[1:], '9' * rest))})"]
    if int(high[0]) - int(low[0]) > 1:
        parts.append(f"[{int(low[0]) + 1}-{int(high[0]) - 1}]{_digits(rest)}")
    return [*parts, f"{literal(high[0])} ({' | '.join(_same_length('0' * rest, high[1:]))})"]


def _digits(count: int) -> str:
    return f" [0-9]{{{count}}}" if count else ""


def _codes(allowed: Callable[[int], bool], prefix: int = 0, width: int = 4) -> str:
    """The texts of ``width`` hexadecimal digits after ``prefix`` whose code is allowed; empty where none is."""
    start = prefix << (4 * width)
    verdicts = {allowed(code) for code in range(start, start + (1 << (4 * width)))}
    if verdicts == {True}:
        return " ".join(["hex"] * width)
    if verdicts == {False}:
        return ""
    below = [(digit, _codes(allowed, prefix * 16 + int(digit, 16), width - 1) if width > 1 else "") for digit in _HEX]
    if width == 1:
        below = [(digit, "+" if allowed(prefix * 16 + int(digit, 16)) else "") for digit in _HEX]
    parts = []
    for rest, digits in groupby(sorted(below, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
        if rest:
            found = "".join(digit for digit, _ in digits)
            both_cases = found + "".join(digit.upper() for digit in found if digit.isalpha())
            parts.append(f"[{both_cases}]" + (f" ({rest})" if width > 1 else ""))
    return " | ".join(parts)
