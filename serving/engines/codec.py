"""Text to ids and back, without ever letting text become a marker.

Invariants: user and tool text is encoded with every added token off, special or not; only what a dialect or chat
template declares as a marker may become one; sampled ids are decoded, never encoded again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

_REPLACEMENT = "\ufffd"  # what a decoder shows for bytes that are not (yet) a character
_SLOT = "\ue000{}\ue001"  # private-use characters, taken out of any text that is put between them


class Codec:
    """A tokenizer, seen as the two operations that token identity allows."""

    exact: ClassVar[bool] = True  # whether ids are the model's own

    def __init__(self, tokenizer: Any, vocab_size: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = max(vocab_size or 0, len(tokenizer))
        self._frames: dict[tuple[str, ...], list[list[int]]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: a marker or control token written in it stays plain text."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def markers(self, text: str) -> list[int]:
        """Ids of text that the system itself writes, where markers and control tokens count."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def protocol(self, text: str, markers: Sequence[str], behind: str = "") -> list[int]:
        """Ids of a system prompt of ours, and of plain text behind it.

        Of ``markers``, those that the vocabulary has as tokens count, so that the model reads a call as it is to write
        one; everything else is plain, and all that stands between two of them is encoded at once.
        """
        known = sorted((marker for marker in markers if marker in self._added), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        parts[-1] += behind
        ids: list[int] = []
        for place, part in enumerate(parts):
            ids += self.markers(part) if place % 2 else self.encode(part)
        return ids

    def wrapped(self, opener: str, text: str, closer: str) -> list[int]:
        """Ids of plain text between two markers."""
        return [*self.markers(opener), *self.encode(text), *self.markers(closer)]

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text of ids, control tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def prompt(self, messages: Sequence[Mapping[str, str | Sequence[int]]], *, continues: bool = False) -> list[int]:
        """Ids of a conversation up to where the assistant speaks, through the model's own chat template.

        The template is rendered around placeholders and the contents are encoded apart, so that no content can close
        its turn or forge another; a content may also be ids. With ``continues`` the last message is left open, to be
        gone on with. Raises ValueError when the tokenizer has no template, or its template refuses the messages.
        """
        slots = [_SLOT.format(i) for i in range(len(messages))]
        frame = self._rendered([{**message, "content": slots[i]} for i, message in enumerate(messages)])
        if continues:
            frame = frame[: frame.rindex(slots[-1]) + len(slots[-1])]
        ids: list[int] = []
        for position, part in enumerate(re.split(r"\ue000(\d+)\ue001", frame)):
            if position % 2:
                content = messages[int(part)]["content"]
                ids += self.encode(content) if isinstance(content, str) else content
            elif part:
                ids += self.markers(part)
        return ids

    def message(self, role: str, content: Sequence[int], *, ended: bool) -> list[int]:
        """Ids of a message that follows the assistant's turn, up to where the assistant speaks again.

        ``content`` are the ids between the role's frame. ``ended`` says that the turn's own end token is there already.
        """
        return self.messages([(role, content)], ended=ended)

    def messages(self, messages: Sequence[tuple[str, Sequence[int]]], *, ended: bool) -> list[int]:
        """The same for several messages, role and content each."""
        before, *between = self._frame(tuple(role for role, _ in messages))
        start = 1 if ended and before and before[0] in self.eos else 0
        ids = before[start:]
        for (_, content), after in zip(messages, between, strict=True):
            ids += [*content, *after]
        return ids

    def _frame(self, roles: tuple[str, ...]) -> list[list[int]]:
        """What the chat template writes before, between and behind messages that follow an assistant's, as ids."""
        if roles not in self._frames:
            slots = [_SLOT.format(number) for number in range(2 + len(roles))]
            turns = zip(("user", "assistant", *roles), slots, strict=True)
            rest = self._rendered([{"role": speaker, "content": slot} for speaker, slot in turns])
            parts = []
            for slot in slots[1:]:
                part, _, rest = rest.partition(slot)
                parts.append(part)
            self._frames[roles] = [self.markers(part) for part in (*parts[1:], rest)]
        return self._frames[roles]

    def _rendered(self, messages: Sequence[Mapping[str, object]]) -> str:
        """The chat template around these messages, and where the assistant speaks next."""
        if not self.tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template; the model cannot be prompted")
        from jinja2 import TemplateError  # comes with transformers; the core installation has neither

        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from None

    @cached_property
    def _plain(self) -> Any:
        """The same tokenizer without its added tokens. ``split_special_tokens`` would keep those that are not declared
        special, and that is how several model families declare the markers of a call."""
        from tokenizers import Tokenizer

        state = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return Tokenizer.from_str(json.dumps({**state, "added_tokens": [], "post_processor": None}))

    @cached_property
    def _added(self) -> frozenset[str]:
        """The texts of the added tokens, special or not."""
        return frozenset(self.tokenizer.get_added_vocab())

    @cached_property
    def eos(self) -> frozenset[int]:
        """The end tokens of a turn."""
        ids = self.tokenizer.eos_token_id
        return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])

    @cached_property
    def closers(self) -> NDArray[np.bool_]:
        """Per id of the vocabulary: whether its text has a ``>``, without which no marker can close."""
        mask = np.zeros(self.vocab_size, dtype=np.bool_)
        for token, index in self.tokenizer.get_vocab().items():
            mask[index] = ">" in token
        return mask

    @cached_property
    def every(self) -> NDArray[np.bool_]:
        """Per id of the vocabulary: true. For callers who want to see each token."""
        return np.ones(self.vocab_size, dtype=np.bool_)


class Decoder:
    """Incremental decoding: each call returns the text that the new ids completed, holding back a half character."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._start = 0  # where the window that gives context to the next piece begins
        self._read = 0  # up to where text was returned

    def push(self, ids: Sequence[int], final: bool = False) -> str:
        """New text for ``ids``, the whole turn so far. ``final`` gives out a half character as it stands."""
        if len(ids) == self._read:
            return ""
        known = self._codec.decode(ids[self._start : self._read])
        text = self._codec.decode(ids[self._start :])
        if text.endswith(_REPLACEMENT) and not final:
            return ""
        self._start, self._read = self._read, len(ids)
        return text[len(known) :]
