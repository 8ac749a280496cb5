"""How a script takes the place of chance: on both sides the logits are overwritten just before sampling.

The forward pass, its key/value cache and the sampler run in full; only the distribution that the sampler sees has all
its mass on the script's next token. TRL's side does it with a ``LogitsProcessor`` handed to ``model.generate``; ours
in the engine's ``Rows.forward``, whose result goes to the engine's sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from benchmarks.replay.scripts import Script
from callwright.serving.engines.rows import Rows
from callwright.serving.engines.transformers_engine import TransformersEngine


def certain(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Logits [n, vocab] with all mass on ``tokens`` [n]."""
    return torch.full_like(logits, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _Forced(LogitsProcessor):  # type: ignore[misc]
    """One call of ``generate``: step t samples column t. A row past its script is finished; it may sample anything."""

    def __init__(self, turns: Sequence[Sequence[int]]) -> None:
        width = max(map(len, turns))
        self._tokens = torch.tensor([[*turn, *[turn[-1]] * (width - len(turn))] for turn in turns])
        self._step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = self._tokens[:, self._step]
        self._step += 1
        return certain(scores, tokens)


class ForcedGenerate:
    """Stands in for a model's ``generate``. TRL generates in waves: call t of a batch is turn t of all scripts that
    have one, in order. ``restart`` begins a batch."""

    def __init__(self, generate: Any, scripts: Sequence[Script]) -> None:
        self._generate = generate
        self._scripts = scripts
        self._wave = 0

    def restart(self) -> None:
        self._wave = 0

    def __call__(self, **kwargs: Any) -> Any:
        turns = [script.turns[self._wave] for script in self._scripts if len(script.turns) > self._wave]
        if len(turns) != len(kwargs["input_ids"]):
            raise RuntimeError(f"wave {self._wave}: {len(kwargs['input_ids'])} rows for {len(turns)} scripts")
        self._wave += 1
        return self._generate(**kwargs, logits_processor=LogitsProcessorList([_Forced(turns)]))


class _ForcedRows(Rows[Any]):
    """Rows whose job with key k samples script k. ``cursors`` count what each script has given."""

    def __init__(self, model: Any, rows: int, context: int, scripts: Sequence[Script]) -> None:
        super().__init__(model, rows, context)
        width = max(len(script.ids) for script in scripts)
        padded = [[*script.ids, *[script.ids[-1]] * (width - len(script.ids))] for script in scripts]
        self._scripted = np.array(padded, dtype=np.int64)
        self._cursors = np.zeros(len(scripts), dtype=np.int64)

    def restart(self) -> None:
        self._cursors[:] = 0

    def forward(self) -> torch.Tensor:
        keys = np.array([job.request.key for job in self.jobs()])
        tokens = self._scripted[keys, np.minimum(self._cursors[keys], self._scripted.shape[1] - 1)]
        self._cursors[keys] += 1
        return certain(super().forward(), torch.from_numpy(tokens))


class ForcedEngine(TransformersEngine):
    """The engine, sampling scripts: a request's key is its script's index."""

    def __init__(
        self, model: Any, scripts: Sequence[Script], *, rows: int, context: int, barrier: bool = False
    ) -> None:
        super().__init__(model, rows=rows, context=context, barrier=barrier)
        self._forced = _ForcedRows(model, rows, context, scripts)
        self._rows = self._forced  # no turn has come yet, so the engine's thread has not looked

    def restart(self) -> None:
        """Begin a batch as a training step does: new weights, so no cached keys and values."""
        self._forced.restart()
        self.set_version(self.version + 1)
