"""The text of each token of a trace, read with the tokenizer that lies beside the run; no torch, no network.

Invariant: the pieces of a segment, joined, are the text that the trace holds; otherwise there are no pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from callwright.training.checkpoints import latest, resolve_checkpoint


class TokenTexts:
    """``why_none`` says why tokens have no texts, for the reader; empty where they have."""

    def __init__(self, run: Path) -> None:
        path = next((path for path in _candidates(run) if path.is_file()), None)
        self._tokenizer: Any = None
        self.why_none = ""
        if path is None:
            self.why_none = "no tokenizer.json in the run's checkpoints or beside its model"
            return
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            self.why_none = "the tokenizers library is not installed: pip install 'callwright[serve]'"
            return
        self._tokenizer = Tokenizer.from_file(str(path))

    def pieces(self, ids: Sequence[int], text: str) -> list[str] | None:
        """One text per id; an id whose bytes end inside a character has "" and the next one has the character."""
        if self._tokenizer is None or not ids:
            return None
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        try:
            pieces = [stream.step(self._tokenizer, id) or "" for id in ids]
        except Exception:  # the library has no narrower class: ids that this tokenizer cannot continue a text with
            return None
        rest = text.removeprefix("".join(pieces))
        if rest.strip("\ufffd"):  # not this text's tokenizer
            return None
        pieces[-1] += rest  # half a character at the end
        return pieces


def _candidates(run: Path) -> Iterator[Path]:
    newest = latest(run / "checkpoints")
    if newest is not None:
        yield newest[1] / "tokenizer.json"
    yield run / "warm_start" / "tokenizer.json"
    config = run / "config.yaml"
    model = (yaml.safe_load(config.read_text()) or {}).get("model") if config.is_file() else None
    if model and model.get("path") not in (None, "tiny"):
        yield Path(resolve_checkpoint(model["path"])) / "tokenizer.json"
