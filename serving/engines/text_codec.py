"""A codec for models that are known by their text alone: an id is a byte, or one of a few marks around messages.

Invariants: any text comes back exactly; the marks have no text, so no content can forge one. A dialect's markers are
plain text here, as they are to every model behind a text API: what users and tools say may look like one to it, but
never to our parser, which reads sampled ids only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from callwright.serving.engines.codec import Codec

END = 256
_ROLES = {"system": 257, "user": 258, "assistant": 259, "tool": 260}
_NAMES = {mark: role for role, mark in _ROLES.items()}
_SIZE = 261


class TextCodec(Codec):
    """Needs no tokenizer."""

    exact: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__((), _SIZE)

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="surrogatepass"))

    def markers(self, text: str) -> list[int]:
        return self.encode(text)

    def protocol(self, text: str, markers: Sequence[str], behind: str = "") -> list[int]:
        return self.encode(text + behind)

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < END).decode(errors="replace")

    def prompt(self, messages: Sequence[Mapping[str, str | Sequence[int]]], *, continues: bool = False) -> list[int]:
        ids: list[int] = []
        for message in messages:
            content = message["content"]
            ids += [_ROLES[str(message["role"])], *(self.encode(content) if isinstance(content, str) else content)]
        return ids if continues else [*ids, _ROLES["assistant"]]

    def messages(self, messages: Sequence[tuple[str, Sequence[int]]], *, ended: bool) -> list[int]:
        ids = [] if ended else [END]
        for role, content in messages:
            ids += [_ROLES[role], *content]
        return [*ids, _ROLES["assistant"]]

    @cached_property
    def eos(self) -> frozenset[int]:
        return frozenset({END})

    @cached_property
    def closers(self) -> NDArray[np.bool_]:
        mask = np.zeros(_SIZE, dtype=np.bool_)
        mask[ord(">")] = True
        return mask

    def conversation(self, ids: Sequence[int], sampled: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
        """Role and text of each message in a context. ``sampled`` are the spans that the model wrote: what was put
        behind them without a mark, as some dialects put results, is told to it by the user."""
        starts, ends = dict(sampled), {end for _, end in sampled}
        found: list[tuple[str, list[int]]] = []
        place = 0
        while place < len(ids):
            end = starts.get(place)
            if end is not None:
                found.append(("assistant", list(ids[place:end])))
                place = end
                continue
            mark = ids[place]
            if mark in _NAMES:
                found.append((_NAMES[mark], []))
            elif mark != END:
                if not found or place in ends:
                    found.append(("user", []))
                found[-1][1].append(mark)
            place += 1
        return [(role, self.decode(content)) for role, content in found if content]
