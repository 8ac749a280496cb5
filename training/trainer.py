"""TRL's GRPOTrainer with four additions: the sampler's own logprobs as the old policy, losses over surviving rows
only, corrections for tokens that another policy sampled, and a packed forward pass.

Invariants: without a correction the old logprobs of a row are those its tokens were sampled with; no forward pass is
spent on old logprobs, with one or without; a row that the rollout function masked (``env_mask`` all 0, reward None)
moves nothing, whatever the loss type.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl import GRPOTrainer

from callwright.training import processes
from callwright.training.checkpoints import latest, publish
from callwright.training.constrained import TurnGrammar, constrained_logprobs
from callwright.training.corrections import Corrections
from callwright.training.groups import loss_scale
from callwright.training.microbatches import by_length, by_prompt, repack
from callwright.training.mismatch import Mismatch
from callwright.training.update.logprobs import packed_logprobs
from callwright.training.update.support import install_where_exact

NO_CORRECTIONS = Corrections()

# TRL warns, with the whole row, of each batch that holds a row without a reward. Here such a row is a rollout that was
# lost, which is counted and told elsewhere.
logging.getLogger(GRPOTrainer.__module__).addFilter(
    lambda record: "All reward functions returned None" not in record.getMessage()
)


class ToolGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO over rollouts that come with their logprobs, mask, reward and outcome.

    ``checkpoints``: the folder that receives ``step-N`` folders; ``turns``: what every sampled turn was held to, if to
    anything.
    """

    beta: float  # TRL's, scaled for as long as a loss is computed
    _buffered_inputs: Any  # TRL's: the generation batch in micro-batches

    def __init__(
        self,
        *args: Any,
        checkpoints: Path,
        corrections: Corrections = NO_CORRECTIONS,
        turns: TurnGrammar | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._turns = turns
        self._checkpoints = checkpoints
        self._corrections = corrections
        self._mismatch = Mismatch()
        self._sampled_logps: torch.Tensor | None = None
        self._present: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._counted: torch.Tensor | None = None  # while a loss is computed: the tokens it is about
        self._packs = self._install_packing()

    def _install_packing(self) -> bool:
        model = self.model.get_base_model() if is_peft_model(self.model) else self.model
        if self.aux_loss_enabled or self.args.cast_lm_head_to_fp32 or self._turns is not None:
            return False  # the first two are TRL's forward pass alone
        return install_where_exact([model] if self.ref_model is None else [model, self.ref_model], self.temperature)

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
        order = by_prompt if self._packs else by_length
        self._buffered_inputs = repack(self._buffered_inputs, None if self.loss_type == "bnpo" else order)
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
        forward = self._packed_pass if self._packs else super()._get_per_token_logps_and_entropies
        if self._turns is not None:
            forward = self._constrained_pass
        result = forward(model, input_ids, *args, **kwargs)
        if self._present is not None and torch.is_grad_enabled():
            self._correct(*self._present, result[0].detach())
        return result

    def _packed_pass(
        self,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        """What TRL's does, for text: logprobs and entropies [rows, completion] of the tokens that count."""
        counted = mask[:, -logits_to_keep:].bool() if self._counted is None else self._counted
        parts = [torch.split(part, batch_size or len(ids)) for part in (ids, mask, counted)]
        with self.accelerator.autocast():
            results = [packed_logprobs(model, *rows) for rows in zip(*parts, strict=True)]
        logps, entropies = (torch.cat(columns) for columns in zip(*results, strict=True))
        return logps, entropies, None

    def _constrained_pass(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, logits_to_keep: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        """The same of the distribution that the turns' grammar leaves; asked for by a loss alone."""
        assert self._turns is not None
        assert self._counted is not None
        allowed = self._turns.allowed(ids[:, -logits_to_keep:], self._counted)
        with self.accelerator.autocast():
            return *constrained_logprobs(model, ids, mask, allowed, self.temperature), None

    def _correct(self, inputs: dict[str, Any], kept: dict[str, Any], logps: torch.Tensor) -> None:
        """Called between a loss's forward pass and the rest of it: TRL reads the inputs only then."""
        mask = _mask(inputs)
        if self._micro_batches_used % self._micro_batches_a_generation == 0:  # before any update on the batch
            self._measure(inputs, logps, mask)
        self._corrections.apply(inputs, kept, logps, mask, self.loss_type)

    def _measure(self, inputs: dict[str, Any], logps: torch.Tensor, mask: torch.Tensor) -> None:
        self._mismatch.add(logps, inputs["sampling_per_token_logps"], mask)
        if self._mismatch.parts == self.args.steps_per_generation:
            for name, value in self._mismatch.figures(self._corrections.bounds).items():
                self._metrics["train"][f"sampling/{name}"].append(value)
            self._mismatch = Mismatch()

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        scale = float(inputs["loss_scale"])
        beta, self.beta = self.beta, self.beta * scale
        present = {**inputs, "advantages": inputs["advantages"] * scale}
        self._present, self._counted = (present, inputs), _mask(inputs)
        try:
            loss: torch.Tensor = super()._compute_loss(model, present)
        finally:
            self.beta, self._present, self._counted = beta, None, None
        return loss

    def save_now(self) -> None:
        """Publish a checkpoint of the present step, unless it is there already."""
        newest = latest(self._checkpoints)
        # The first may publish before another looks: one process that misses it is enough for all to save.
        if processes.any_of(newest is None or newest[0] != self.rollout_index):
            self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save through Trainer, and publish what the first process saved whole as ``checkpoints/step-N``.

        The others save with it, to nowhere: Trainer communicates as it saves.
        """
        if processes.is_first():
            with publish(self._checkpoints, self.rollout_index) as staging:
                self._save_into(staging, model, trial)
        else:
            with tempfile.TemporaryDirectory() as nowhere:
                self._save_into(Path(nowhere), model, trial)
        self.accelerator.wait_for_everyone()

    def _save_into(self, folder: Path, model: Any, trial: Any) -> None:
        output_dir, self.args.output_dir = self.args.output_dir, str(folder)
        try:
            # The grandparent: TRL's own override adds a model card that talks about the hub.
            super(GRPOTrainer, self)._save_checkpoint(model, trial)
        finally:
            self.args.output_dir = output_dir
        inner = next(folder.glob("checkpoint-*"))
        for item in inner.iterdir():
            item.rename(folder / item.name)
        inner.rmdir()


def _mask(inputs: dict[str, Any]) -> torch.Tensor:
    """Which completion tokens [rows, tokens] the policy sampled, in rows that count."""
    mask: torch.Tensor = inputs["completion_mask"] * inputs["tool_mask"]
    return mask.bool()


def _pad_right(rows: list[list[float]], device: torch.device) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [0.0] * (width - len(row)) for row in rows], device=device)
