"""Grammars over a codec's vocabulary: which tokens a turn may go on with, as a mask over the logits.

Invariants: a token counts with the text that the parser reads for it, so a dialect's marker is text however its
tokenizer declares it, and only end tokens have none; a row without a grammar keeps its logits, bit for bit.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from callwright.serving.engines.codec import Codec

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer

KEPT = 64  # grammars compiled and remembered: a client's tools come again with each of its turns


class Grammars:
    """Compiles EBNF for one codec; each turn takes a matcher of its own. Safe to use from several threads."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def matcher(self, grammar: str) -> LLMatcher:
        """A fresh matcher of the grammar. Raises ValueError for one that cannot be compiled."""
        with self._lock:
            if grammar not in self._compiled:
                self._compiled[grammar] = self._compile(grammar)
                if len(self._compiled) > KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            return self._compiled[grammar].deep_copy()

    @property
    def bytes_a_mask(self) -> int:
        """Of ``mask``."""
        return 4 * -(-self._codec.vocab_size // 32)

    def mask(self, matcher: LLMatcher) -> NDArray[np.uint8]:
        """Which tokens it goes on with, a bit each, the first in the lowest bit of the first byte."""
        mask: NDArray[np.uint8] = self._masks([matcher])[0]
        return mask

    def _masks(self, matchers: Sequence[LLMatcher]) -> NDArray[np.uint8]:
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par

        bits = allocate_token_bitmask(len(matchers), self._codec.vocab_size)
        fill_next_token_bitmask_par(self._executor, [(matcher, at) for at, matcher in enumerate(matchers)], bits)
        masks: NDArray[np.uint8] = bits.view(np.uint8)
        return masks

    def constrain(self, logits: torch.Tensor, matchers: Sequence[LLMatcher | None]) -> None:
        """Forbid in place, per row of ``logits`` [n, vocab], every token that its matcher does not go on with."""
        pairs = [(row, matcher) for row, matcher in enumerate(matchers) if matcher is not None]
        if not pairs:
            return
        bits = self._masks([matcher for _, matcher in pairs])
        allowed = np.unpackbits(bits, axis=1, count=logits.shape[1], bitorder="little")
        rows = torch.tensor([row for row, _ in pairs], device=logits.device)
        forbidden = torch.from_numpy(allowed == 0).to(logits.device)
        logits[rows] = logits[rows].masked_fill(forbidden, float("-inf"))

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher, grammar_from

        matcher = LLMatcher(self._tokenizer, grammar_from("ebnf", grammar), log_level=0)
        if matcher.is_error():
            raise ValueError(f"the grammar cannot be compiled: {matcher.get_error().splitlines()[0]}")
        return matcher

    @cached_property
    def _executor(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor()

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        if not self._codec.eos:
            raise ValueError("a grammar needs a tokenizer with an end token: nothing else can end a turn")
        vocabulary = TokenizerWrapper(_Vocabulary(self._codec))
        return LLTokenizer(vocabulary, n_vocab=self._codec.vocab_size, eos_token=sorted(self._codec.eos))


class _Vocabulary:
    """The bytes of each token, as llguidance asks for them. Its own reader of tokenizers takes every added token in
    angle brackets for a control token, which no grammar of text can hold."""

    bos_token_id = None

    def __init__(self, codec: Codec) -> None:
        from llguidance import LLTokenizer

        state = json.loads(codec.tokenizer.backend_tokenizer.to_str())
        added = {token["id"]: str(token["content"]).encode() for token in state["added_tokens"]}
        bare = json.dumps({**state, "added_tokens": [], "post_processor": None})
        reader = LLTokenizer(bare, n_vocab=codec.vocab_size, eos_token=min(codec.eos))
        known = len(codec.tokenizer)
        self.tokens = [added[i] if i in added else reader.decode_bytes([i]) for i in range(known)]
        self.tokens += [b""] * (codec.vocab_size - known)  # logits that no token stands for
        self.special_token_ids = sorted(codec.eos)
        self.eos_token_id = min(codec.eos)
        self._codec = codec

    def __call__(self, text: str | bytes) -> list[int]:
        """The ids that a text has where nothing else is allowed: markers are markers there."""
        return self._codec.markers(text.decode() if isinstance(text, bytes) else text)
