"""Tool names under each vendor's rule: a reversible map, kept for one conversation.

Invariants: a name that the rule allows stays as it is, unless another name already became it; two names never become
one; every name given out can be turned back; a changed name depends on nothing but the name, so tools, choice and
calls agree even without a shared map (collisions apart: share the map to be safe from those).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from callwright.serving.wires.base import WireError, WireFormat

_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANYTHING = re.compile(r".+", re.DOTALL)
RULES = {
    WireFormat.OPENAI: _LETTERS_AND_DIGITS,
    WireFormat.RESPONSES: _LETTERS_AND_DIGITS,
    WireFormat.ANTHROPIC: _LETTERS_AND_DIGITS,  # some models take 128 characters; all take 64
    WireFormat.GEMINI: re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"),
    WireFormat.OLLAMA: _ANYTHING,
    WireFormat.HERMES: _ANYTHING,
}
# The ids of calls, where a vendor is known to refuse some.
ID_RULES = {
    WireFormat.OPENAI: re.compile(r".{1,40}", re.DOTALL),
    WireFormat.RESPONSES: re.compile(r".{1,64}", re.DOTALL),
    WireFormat.ANTHROPIC: re.compile(r"[A-Za-z0-9_-]{1,64}"),
}


class NameMap:
    """Names of one conversation on one wire. Declare the tools first: allowed names are then never displaced."""

    def __init__(self, fmt: WireFormat, names: Iterable[str] = ()) -> None:
        self._fmt = fmt
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in sorted(names, key=lambda name: RULES[fmt].fullmatch(name) is None):
            self.to_wire(name)

    @property
    def fmt(self) -> WireFormat:
        return self._fmt

    def to_wire(self, name: str) -> str:
        """The name that the vendor sees."""
        if not name:
            raise WireError("a tool has a name")
        if name not in self._there:
            wire = next(option for option in self._options(name) if option not in self._back)
            self._there[name], self._back[wire] = wire, name
        return self._there[name]

    def from_wire(self, name: str) -> str:
        """The name that the vendor's name stands for; itself where it was never given out."""
        return self._back.get(name, name)

    def _options(self, name: str) -> Iterable[str]:
        if RULES[self._fmt].fullmatch(name):
            yield name
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        stem = stem if re.match(r"[A-Za-z_]", stem) else f"_{stem}"
        for attempt in range(1 << 16):
            yield f"{stem[:51]}_{_digest(f'{attempt}:{name}')[:12]}"


def wire_id(fmt: WireFormat, call_id: str) -> str:
    """The id as the vendor takes it: itself, or a hash of it that is the same in a call and in its result."""
    rule = ID_RULES.get(fmt)
    return call_id if rule is None or rule.fullmatch(call_id) else f"call_{_digest(call_id)[:32]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
