"""Training under a decoding grammar: the distribution that the grammar left of the policy's at each sampled token.

Invariant: the sets of tokens are those that the engine drew from. They do not travel with a rollout: the same compiler
finds them again from the ids, and a sampled token outside its set ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.constraint import Grammars
from callwright.serving.errors import RunError

if TYPE_CHECKING:
    from llguidance import LLMatcher

_LOWEST = 0.01  # of the dtype's lowest number: dividing by a temperature must not make it infinite


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which tokens [rows, tokens, vocabulary / 8], as bits, a turn could go on with at each place of ``counted``
    [rows, tokens]; elsewhere every token."""

    bits: NDArray[np.uint8]
    counted: torch.Tensor

    def narrowed(self, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` [rows, tokens, vocabulary] with all other tokens out of reach, though not infinitely: an entropy
        is a number."""
        allowed = np.unpackbits(self.bits, axis=-1, count=logits.shape[-1], bitorder="little")
        forbidden = torch.from_numpy(allowed == 0).to(logits.device) & self.counted[..., None]
        return logits.masked_fill(forbidden, _LOWEST * torch.finfo(logits.dtype).min)


class TurnGrammar:
    """The EBNF ``grammar`` that every turn of a run is held to."""

    def __init__(self, codec: Codec, grammar: str) -> None:
        self._grammars = Grammars(codec)
        self._grammar = grammar
        self._eos = codec.eos

    def allowed(self, ids: torch.Tensor, counted: torch.Tensor) -> Allowed:
        """For completions ``ids`` [rows, tokens]; each stretch of ``counted`` tokens is a turn. Raises RunError."""
        bits = np.zeros((*ids.shape, self._grammars.bytes_a_mask), dtype=np.uint8)
        for row, (tokens, places) in enumerate(zip(ids.tolist(), counted.tolist(), strict=True)):
            matcher = None
            for at, (token, counts) in enumerate(zip(tokens, places, strict=True)):
                matcher = (matcher or self._grammars.matcher(self._grammar)) if counts else None
                if matcher is not None:
                    bits[row, at] = self._step(matcher, token)
        return Allowed(bits, counted)

    def _step(self, matcher: LLMatcher, token: int) -> NDArray[np.uint8]:
        """The set before a token, which the matcher then goes past."""
        mask = self._grammars.mask(matcher)
        if not mask[token // 8] >> token % 8 & 1:
            raise RunError(
                f"token {token} was sampled under decoding=grammar, which does not allow it there: the engine and the "
                "trainer read two grammars"
            )
        if token not in self._eos:
            matcher.consume_token(token)
        return mask


def constrained_logprobs(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, allowed: Allowed, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies [rows, completion] in nats, 0 where a token is not counted. All logits of the completions
    are held at once. ``ids`` and ``mask`` [rows, prompt + completion]."""
    keep = allowed.counted.shape[1]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1].float()
    logprobs = (allowed.narrowed(logits) / temperature).log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    chosen = logprobs.gather(-1, ids[:, -keep:, None])[..., 0]
    return chosen.where(allowed.counted, 0.0), entropies.where(allowed.counted, 0.0)
