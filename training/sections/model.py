"""The policy that is trained."""

from __future__ import annotations

from callwright.training.sections.base import Names, Positive, Rate, Section, Share


class Lora(Section):
    """LoRA adapters through PEFT."""

    r: Positive = 16
    """Rank."""
    alpha: Positive = 32
    """Scale numerator: the update is weighted by alpha / r."""
    dropout: Share = 0.0
    """Dropout on the adapter's input."""
    target_modules: Names = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Names of the layers that get an adapter; `[all-linear]` takes every linear layer."""


class Model(Section):
    """The policy."""

    path: str = "tiny"
    """`tiny` (made from scratch), `smollm2` (the packaged SmolLM2-135M-Instruct), a local folder, or a hub id."""
    lora: Lora | None = None
    """Adapters instead of full weights; null trains every weight."""
    parameters: Rate | None = None
    """Its parameters in billions, for the estimates of `train --dry-run` where no file of it is on this machine."""
