"""Which models an update packs: those for which it gives the logprobs of their own forward pass.

Invariant: a model that is refused is left as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from callwright.serving.progress import log
from callwright.training.update.logprobs import install, packed_logprobs

LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Config keys by which families change the logits behind their head."""


def install_where_exact(models: Sequence[Any], temperature: float) -> bool:
    """Teach all of ``models`` (causal LMs, not wrapped) to take a layout, or none of them and say why, once."""
    reasons = [reason for model in models if (reason := refusal(model)) is not None]
    if not reasons:
        plain = [(model, model.forward, model.config._attn_implementation) for model in models]
        for model in models:
            install(model, temperature)
        if all(_agrees(model, forward, temperature) for model, forward, _ in plain):
            return True
        for model, forward, attention in plain:
            model.forward = forward
            model.set_attn_implementation(attention)
        reasons = ["its attention does not take a packed batch"]
    log(f"updates run TRL's own forward pass, padding and all: {reasons[0]}")
    return False


def refusal(model: Any) -> str | None:
    """Why this model cannot be packed, as far as its config tells."""
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    changed = [name for name in LOGIT_CHANGES if getattr(config, name, None) not in (None, 1.0)]
    if model.config._attn_implementation != "sdpa" or not model._supports_attention_backend:
        return f"its attention is {model.config._attn_implementation}, not sdpa through transformers' interface"
    if layers != {"full_attention"} or _slides(config):
        return "not every layer attends to the whole context"
    if changed:
        return f"its head has {changed[0]}"
    if not isinstance(model.get_output_embeddings(), torch.nn.Linear):
        return "its head is not a plain linear layer"
    return None


def _slides(config: Any) -> bool:
    """Whether a config without types of layers has a window, and uses it."""
    if getattr(config, "layer_types", None) is not None or getattr(config, "sliding_window", None) is None:
        return False
    return bool(getattr(config, "use_sliding_window", True))


@torch.no_grad()
def _agrees(model: Any, forward: Any, temperature: float) -> bool:
    """Whether two short rows of one prompt get the same logprobs packed as from the model's own forward pass."""
    device, training = model.get_input_embeddings().weight.device, model.training
    ids = torch.arange(1, 19, device=device).view(2, 9) % model.config.get_text_config().vocab_size
    ids[:, :5] = ids[0, :5]
    mask, counted = torch.ones_like(ids), torch.ones(2, 4, dtype=torch.bool, device=device)
    model.eval()
    try:
        packed, _ = packed_logprobs(model, ids, mask, counted)
        logits = forward(input_ids=ids, attention_mask=mask).logits[:, 4:-1].float() / temperature
    finally:
        model.train(training)
    plain = logits.log_softmax(-1).gather(-1, ids[:, 5:, None])[..., 0]
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.02
    return bool((packed - plain).abs().max() <= tolerance * plain.abs().max())
