"""How far our gradient is from TRL's, on batches whose importance ratios run from 0.5 to 2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.update.sides import make_trainer

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
RATIOS = (0.5, 2.0)


def relative_errors(model: str, folder: Path) -> Mapping[str, float]:
    """By loss type: the norm of the difference of both gradients over the norm of TRL's."""
    (theirs, rows), (ours, _) = (make_trainer(side, model, folder / side) for side in ("TRL", "callwright"))
    generation = [{"prompt": ""} for _ in rows]
    plain, packed = (trainer._generate_and_score_completions(generation) for trainer in (theirs, ours))
    plain["old_per_token_logps"] = packed["old_per_token_logps"] = _old_logps(theirs, plain)
    errors = {}
    for loss in LOSSES:
        theirs.loss_type = ours.loss_type = loss
        want, got = _gradient(theirs, plain), _gradient(ours, packed)
        errors[loss] = float((got - want).norm() / want.norm())
    return errors


def _old_logps(trainer: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logprobs [rows, completion] that make the ratio of each token a draw from between ``RATIOS``, in logarithms."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        now: torch.Tensor = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width)[0]
    low, high = map(math.log, RATIOS)
    draws = torch.rand(now.shape, generator=torch.Generator().manual_seed(0)) * (high - low) + low
    return now - draws


def _gradient(trainer: Any, inputs: dict[str, Any]) -> torch.Tensor:
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, inputs).backward()
    return torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
