"""One turn as it comes from a server, token by token, and where it ends.

Invariants: ids and logprobs grow together; the id that ends the turn is the last one kept, and what came behind it is
only counted; every id belongs to the version of the weights that the server had when it came.
"""

from __future__ import annotations

from callwright.serving.engines.engine import Completion, EngineError, FinishReason, Request
from callwright.serving.engines.vllm.client import Piece


class Sampled:
    """What one request gave so far. ``room``: how many tokens there may be."""

    def __init__(self, request: Request, room: int) -> None:
        self._request, self._room = request, room
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._version = 0
        self._changes: list[tuple[int, int]] = []
        self.dropped = 0  # ids that came behind the end

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, piece: Piece, version: int) -> FinishReason | None:
        """Take in what came; why the turn is over, if it is. Raises EngineError for an end that nobody asked for."""
        if piece.ids:
            self._note(version)
        for count, (token, logprob) in enumerate(zip(piece.ids, piece.logprobs, strict=True), 1):
            reason = self._take(token, logprob)
            if reason is not None:
                self.dropped += len(piece.ids) - count
                return reason
        if piece.finish is not None:
            last = f" behind token {self._ids[-1]}" if self._ids else ""
            raise EngineError(f"the server ended the turn by itself ({piece.finish}{last})")
        return None

    def completion(self, reason: FinishReason) -> Completion:
        return Completion(tuple(self._ids), tuple(self._logprobs), reason, self._version, tuple(self._changes))

    def _note(self, version: int) -> None:
        if not self._ids:
            self._version = version
        elif version != (self._changes[-1][1] if self._changes else self._version):
            self._changes.append((len(self._ids), version))

    def _take(self, token: int, logprob: float) -> FinishReason | None:
        request = self._request
        self._ids.append(token)
        self._logprobs.append(logprob)
        try:
            if request.on_token is not None:
                request.on_token(token)
            if token in request.eos:
                return FinishReason.EOS
            watched = request.watch is not None and request.watch[token]
            if watched and request.stop is not None and request.stop(self._ids):
                return FinishReason.STOP
        except Exception as error:  # a callback's failure is its own turn's
            raise EngineError(f"a callback of the turn failed: {type(error).__name__}: {error}") from error
        return FinishReason.LENGTH if len(self._ids) >= self._room else None
