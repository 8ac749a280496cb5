"""The text of an HTML page.

Invariant: the time is linear in the page's length, whatever is in it: each place is passed once, and a search for
something that does not come any more is made once. (The standard library's parser is not, in the Pythons we run on.)
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)|<[!?]")
_IN_TAG = re.compile(r">|=\s*([\"'])")
_HUGE_REFERENCE = re.compile(r"&#[xX]?[0-9a-fA-F]{8,};?")  # no character has such a number
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")

# Elements that hold nothing to read, with what ends them.
_DROPPED = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("script", "style", "noscript", "template", "svg", "title", "nav", "header", "footer", "aside")
}
_RAW = ("script", "style", "title")  # an open one of these runs to the end of the page
_INLINE = frozenset(
    (
        *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "kbd", "mark", "q", "s"),
        *("samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"),
    )
)


def text_of_html(page: str) -> str:
    """What a person reads there: no tags, references resolved, one line for each block of text."""
    text = html.unescape(_HUGE_REFERENCE.sub("\ufffd", "".join(_pieces(page))))
    return _LINES.sub("\n", _SPACES.sub(" ", text)).strip()


def _pieces(page: str) -> Iterator[str]:
    at = 0
    gone: set[str] = set()
    while (start := page.find("<", at)) >= 0:
        yield page[at:start]
        at, instead = _markup(page, start, gone)
        yield instead
    yield page[at:]


def _markup(page: str, start: int, gone: set[str]) -> tuple[int, str]:
    """Where the markup at ``start`` ends, and what stands in its place. ``gone``: elements not closed any more."""
    if page.startswith("<!--", start):
        end = page.find("-->", start + 4)
        return (len(page) if end < 0 else end + 3), ""
    tag = _TAG.match(page, start)
    if tag is None:
        return start + 1, "<"
    name = (tag[2] or "").lower()
    end = _end_of_tag(page, tag.end())
    if name in _DROPPED and not tag[1] and name not in gone:
        closer = _DROPPED[name].search(page, end)
        if closer is not None:
            end = closer.start()
        elif name in _RAW:
            end = len(page)
        else:
            gone.add(name)
    return end, "" if name in _INLINE else "\n"


def _end_of_tag(page: str, at: int) -> int:
    """Behind the ``>`` that no quoted value holds. A quote that is not closed is none."""
    while (stop := _IN_TAG.search(page, at)) is not None:
        at = stop.end()
        if not stop[1]:
            return at
        at = max(at, page.find(stop[1], at) + 1)  # fails once at most: at the last quote of the page
    return len(page)
