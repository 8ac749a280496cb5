"""TRL's GRPOTrainer with two additions: the sampler's own logprobs as the old policy, and losses over surviving rows
only.

Invariants: the old logprobs of a row are those its tokens were sampled with, so the ratio is 1 before the first update;
a row that the rollout function masked (``env_mask`` all 0, reward None) moves nothing, whatever the loss type.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from callwright.training.checkpoints import latest, publish
from callwright.training.groups import loss_scale
from callwright.training.microbatches import repack

# TRL warns, with the whole row, of each batch that holds a row without a reward. Here such a row is a rollout that was
# lost, which is counted and told elsewhere.
logging.getLogger(GRPOTrainer.__module__).addFilter(
    lambda record: "All reward functions returned None" not in record.getMessage()
)


class ToolGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO over rollouts that come with their logprobs, mask, reward and outcome.

    ``checkpoints``: the folder that receives ``step-N`` folders.
    """

    beta: float  # TRL's, scaled for as long as a loss is computed
    _buffered_inputs: Any  # TRL's: the generation batch in micro-batches

    def __init__(self, *args: Any, checkpoints: Path, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._checkpoints = checkpoints
        self._sampled_logps: torch.Tensor | None = None
        self._last_logps: torch.Tensor | None = None

    @property
    def rollout_index(self) -> int:
        """Which generation batch is next: optimizer steps so far over updates a batch."""
        return self._micro_batches_used // self._micro_batches_a_generation

    @property
    def _micro_batches_used(self) -> int:
        return int(self.state.global_step) * int(self.args.gradient_accumulation_steps)

    @property
    def _micro_batches_a_generation(self) -> int:
        return int(self.args.steps_per_generation) * int(self.num_iterations)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        # bnpo averages over micro-batches, so which rows share one is part of its loss; every other type only adds up.
        self._buffered_inputs = repack(self._buffered_inputs, sort=self.loss_type != "bnpo")
        if self.loss_type == "bnpo":
            self._leave_out_dead_micro_batches()
        chosen: dict[str, Any] = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return chosen

    def _leave_out_dead_micro_batches(self) -> None:
        """bnpo averages micro-batches, each over its own tokens: one whose rows are all masked must not count
        either."""
        size = self.args.gradient_accumulation_steps
        for start in range(0, len(self._buffered_inputs), size):
            window = self._buffered_inputs[start : start + size]
            alive = sum(bool(_mask(batch).any()) for batch in window)
            for batch in window:
                batch["loss_scale"] = torch.tensor(len(window) / max(alive, 1))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["old_per_token_logps"] = output["sampling_per_token_logps"]
        alive = _mask(output).any(1)
        survivors = int(self.accelerator.gather(alive.sum()).sum())
        rows = int(alive.numel()) * int(self.accelerator.num_processes)
        output["loss_scale"] = torch.tensor(loss_scale(self.loss_type, survivors, rows), device=alive.device)
        return output

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        # TRL recomputes the old policy's logprobs with one more forward pass; the sampler already gave them.
        if self.args.gradient_accumulation_steps % self._micro_batches_a_generation:
            self._sampled_logps = _pad_right(generated[4], self.accelerator.device)
        return generated

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._sampled_logps is not None and model is self.model and not torch.is_grad_enabled():
            known, self._sampled_logps = self._sampled_logps, None
            return known, None, None
        result = super()._get_per_token_logps_and_entropies(model, input_ids, *args, **kwargs)
        self._last_logps = result[0].detach()
        return result

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        scale = float(inputs["loss_scale"])
        beta, self.beta = self.beta, self.beta * scale
        try:
            loss: torch.Tensor = super()._compute_loss(model, {**inputs, "advantages": inputs["advantages"] * scale})
        finally:
            self.beta = beta
        self._log_ratio_error(inputs)
        return loss

    def _log_ratio_error(self, inputs: dict[str, Any]) -> None:
        """Before the first update on a batch, how far the importance ratio is from 1, at worst."""
        first_pass = self._micro_batches_used % self._micro_batches_a_generation == 0
        if not first_pass or self._last_logps is None or not self.model.training:
            return
        ratio = (self._last_logps - inputs["old_per_token_logps"])[_mask(inputs)].exp()
        if ratio.numel():
            self._metrics["train"]["sampling/ratio_error_max"].append(float((ratio - 1).abs().max()))

    def save_now(self) -> None:
        """Publish a checkpoint of the present step, unless it is there already."""
        newest = latest(self._checkpoints)
        if newest is None or newest[0] != self.rollout_index:
            self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save through Trainer into a staging folder, then publish it whole as ``checkpoints/step-N``."""
        step = self.rollout_index
        with publish(self._checkpoints, step) as staging:
            output_dir, self.args.output_dir = self.args.output_dir, str(staging)
            try:
                # The grandparent: TRL's own override adds a model card that talks about the hub.
                super(GRPOTrainer, self)._save_checkpoint(model, trial)
            finally:
                self.args.output_dir = output_dir
            inner = next(staging.glob("checkpoint-*"))
            for item in inner.iterdir():
                item.rename(staging / item.name)
            inner.rmdir()


def _mask(inputs: dict[str, Any]) -> torch.Tensor:
    """Which completion tokens [rows, tokens] the policy sampled, in rows that count."""
    mask: torch.Tensor = inputs["completion_mask"] * inputs["tool_mask"]
    return mask.bool()


def _pad_right(rows: list[list[float]], device: torch.device) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [0.0] * (width - len(row)) for row in rows], device=device)
