"""Losses over tokens that another policy sampled equal a reference written out by hand, for each type of loss."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer import LOSSES, batch, build, loss_and_gradient, move
from trl import GRPOTrainer

from callwright.training.corrections import Corrections
from callwright.training.trainer import ToolGRPOTrainer

pytestmark = pytest.mark.integration

REWARDS = [1.1, 0.0, 0.1, 1.0, 0.0, 1.1, 0.0, 0.0]
MODES = ("off", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
LOW, HIGH = 0.8, 1.2


@pytest.fixture(scope="module")
def trainer(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> ToolGRPOTrainer:
    """One for all cases: its old logprobs are off by noise, as a stale policy's are. Its forward pass is the plain one:
    vespo takes the exponential of sums over rows, and a packed pass sums in another order."""
    options = {"rewards": REWARDS, "noise": 0.3}
    made = build(saved, tmp_path_factory.mktemp("run"), options, beta=0.0, epsilon=0.2, epsilon_high=0.28)
    made._packs = False
    return made


def logps_of(trainer: ToolGRPOTrainer, inputs: dict[str, Any]) -> torch.Tensor:
    """The model's logprobs [rows, tokens], one row at a time and without padding."""
    rows = []
    for prompt, seen, ids in zip(inputs["prompt_ids"], inputs["prompt_mask"], inputs["completion_ids"], strict=True):
        prompt = prompt[seen.bool()]
        logits = trainer.model(input_ids=torch.cat([prompt, ids])[None]).logits[0, len(prompt) - 1 : -1]
        rows.append(logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0])
    return torch.stack(rows)


def bounded(ratio: torch.Tensor, mode: str) -> torch.Tensor:
    if mode.endswith("truncate"):
        return ratio.clamp(LOW, HIGH)
    return torch.where((ratio >= LOW) & (ratio <= HIGH), ratio, 0.0)


def reference(trainer: ToolGRPOTrainer, inputs: dict[str, Any], mode: str, first: torch.Tensor) -> torch.Tensor:
    """The loss from its definition; ``first``: the model's logprobs when the batch was new."""
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).float()
    sampled, advantage = inputs["sampling_per_token_logps"], inputs["advantages"][:, None]
    logps = logps_of(trainer, inputs)
    if mode == "off":
        old, weight = sampled, torch.ones_like(mask)
    else:
        distance = (first - sampled) * mask
        old = first
        weight = bounded((distance.sum(1, keepdim=True) if mode[0] == "s" else distance).exp(), mode)
        weight = weight.expand_as(mask) if mode[0] == "s" else weight
    ratio, kind = (logps - old).exp(), trainer.loss_type
    if kind == "cispo":
        token = -ratio.clamp(max=0.28).detach() * advantage * logps * weight
    elif kind == "sapo":
        heat = torch.where(advantage > 0, trainer.args.sapo_temperature_pos, trainer.args.sapo_temperature_neg)
        token = -4 / heat * torch.sigmoid(heat * (ratio - 1)) * advantage * weight
    elif kind == "vespo":
        whole = ((logps - old) * mask).sum(1, keepdim=True) + (weight.log() * mask).clamp(min=math.log(1e-8)).sum(
            1, keepdim=True
        )
        whole = whole.clamp(math.log(1e-8), 20).detach()
        up = advantage >= 0
        k = torch.where(up, trainer.args.vespo_k_pos, trainer.args.vespo_k_neg)
        rate = torch.where(up, trainer.args.vespo_lambda_pos, trainer.args.vespo_lambda_neg)
        token = -(rate + k * whole - rate * whole.exp()).exp() * advantage * logps
    else:
        clipped = ratio.clamp(0.8, 1.28)
        token = -torch.minimum(ratio * advantage, clipped * advantage) * weight
    token = token * mask
    if kind in ("grpo", "sapo"):
        return (token.sum(1) / mask.sum(1)).mean()
    if kind == "dr_grpo":
        return token.sum() / (len(mask) * trainer.max_completion_length)
    if kind == "luspo":
        return token.sum(1).mean()
    return token.sum() / mask.sum()


# vespo weighs sequences itself: TRL takes token weights with it, and so do we.
@pytest.mark.parametrize(
    ("loss", "mode"), [(loss, mode) for loss in LOSSES for mode in MODES if (loss, mode[0]) != ("vespo", "s")]
)
def test_the_loss_is_the_reference(trainer: ToolGRPOTrainer, loss: str, mode: str) -> None:
    trainer.loss_type = loss
    off = mode == "off"
    trainer._corrections = Corrections() if off else Corrections(correction=True, mode=mode, low=LOW, high=HIGH)
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    try:
        inputs = batch(trainer)
        with torch.no_grad():
            first = logps_of(trainer, inputs)
        for _ in range(2):  # a new batch, and the same one after an update
            got = loss_and_gradient(trainer, trainer._compute_loss, inputs)
            want = loss_and_gradient(trainer, lambda model, data: reference(trainer, data, mode, first), inputs)
            assert got[0] == pytest.approx(want[0], abs=1e-6, rel=0)
            assert want[1].abs().max() > 1e-4, "a gradient that is nothing proves nothing"
            assert float((got[1] - want[1]).abs().max()) <= 1e-6 * max(1.0, float(want[1].abs().max()) * 10)
            move(trainer.model)
    finally:
        trainer.model.load_state_dict(start)


@pytest.mark.parametrize("mode", MODES[1:])
def test_the_weights_are_trls(saved: Path, tmp_path: Path, mode: str) -> None:
    """TRL computes them for vLLM alone, with a forward pass of its own."""
    options = {"rewards": REWARDS, "noise": 0.3}
    bounds = {"vllm_importance_sampling_clip_min": LOW, "vllm_importance_sampling_clip_max": HIGH}
    ours = build(saved, tmp_path, options, beta=0.0, num_iterations=1, vllm_importance_sampling_mode=mode, **bounds)
    ours._corrections = Corrections.of(ours.args, None)
    inputs = batch(ours)
    ours._compute_loss(ours.model, inputs)
    ours.use_vllm, ours._last_loaded_step = True, ours.state.global_step
    theirs = GRPOTrainer._generate_and_score_completions(ours, [{"prompt": ""} for _ in REWARDS])
    want = theirs["importance_sampling_ratio"]
    assert torch.allclose(inputs["importance_weights"], want, atol=1e-5)
    assert float((want - 1).abs().max()) > 0.1


def test_the_first_ratio_is_one_although_the_batch_is_stale(trainer: ToolGRPOTrainer) -> None:
    """And the old policy stays the one that the batch met first; without a correction it is the sampler's."""
    trainer.loss_type = "dapo"
    trainer._corrections = Corrections(correction=True, high=2.0)
    trainer._metrics["train"].clear()
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    try:
        inputs = batch(trainer)
        trainer._compute_loss(trainer.model, inputs)
        metrics = trainer._metrics["train"]
        assert metrics["clip_ratio/region_mean"] == [0.0]
        assert metrics["sampling/ratio_error_max"][0] > 0.1
        assert 0 < metrics["sampling/mismatch_kl"][0] < 0.1
        assert 0 < metrics["sampling/effective_sample_size"][0] < 1
        assert metrics["sampling/bounded_share"] == [0.0]
        old = inputs["old_per_token_logps"].clone()
        move(trainer.model)
        trainer._compute_loss(trainer.model, inputs)
        assert metrics["clip_ratio/region_mean"][1] > 0
        assert torch.equal(inputs["old_per_token_logps"], old)
        trainer._corrections = Corrections()
        plain = batch(trainer)
        trainer._compute_loss(trainer.model, plain)
        assert torch.equal(plain["old_per_token_logps"], plain["sampling_per_token_logps"])
    finally:
        trainer.model.load_state_dict(start)


def test_dppo_takes_the_gradient_of_tokens_that_moved_too_far(trainer: ToolGRPOTrainer) -> None:
    trainer.loss_type = "dapo"
    trainer._corrections = Corrections(correction=True, high=2.0)
    losses = {}
    for threshold in (None, 1e-6, 0.9):
        trainer._corrections = replace(trainer._corrections, dppo_threshold=threshold)
        losses[threshold] = loss_and_gradient(trainer, trainer._compute_loss, batch(trainer))
    assert torch.equal(losses[None][1], losses[0.9][1])
    assert not torch.allclose(losses[None][1], losses[1e-6][1], atol=1e-5)
