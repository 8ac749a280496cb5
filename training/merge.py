"""A checkpoint as a model folder of its own: weights with the adapter folded in, tokenizer, chat template, card.

Invariants: the folder appears whole or not at all, and never in the place of another; plain transformers loads it, and
its chat template gives the prompts that the model was trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from callwright.serving.errors import UserError
from callwright.serving.models import Loaded, load
from callwright.serving.progress import log
from callwright.serving.protocol.chat_template import chat_template
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.training.checkpoints import WARM_STARTS, resolve_checkpoint, whole_folder
from callwright.training.config import Config, dump_config, load_config
from callwright.training.model_card import model_card


def merge(config: Config) -> Path:
    """Merge ``config.model.path``; returns the new folder. Raises UserError."""
    if config.engine.kind == "remote":
        raise UserError("engine.kind=remote: a vendor's model has no weights here; merge a checkpoint")
    transformers_logging.disable_progress_bar()
    path = Path(resolve_checkpoint(config.model.path))
    run = run_of(path)
    target = _target(config, path, run)
    if target.exists():
        raise UserError(f"{target} is there already: remove it, or say merge.folder=DIR")
    loaded = load_merged(str(path), config.engine.dtype)
    made_with = _as_trained(config, run)
    try:
        with whole_folder(target) as staging:
            write_model(loaded, config, staging)
            (staging / "config.yaml").write_text(dump_config(made_with), encoding="utf-8")
            (staging / "README.md").write_text(model_card(made_with, path, run), encoding="utf-8")
    except OSError as error:
        raise UserError(f"merge.folder={target}: {error.strerror or error}") from None
    log(f"merged {path}")
    return target


def _as_trained(config: Config, run: Path | None) -> Config:
    """The config with the model that training began from in the place of the checkpoint."""
    if run is not None:
        base = load_config(run).model.path
    else:
        base = "tiny" if (WARM_STARTS / config.model.path).is_dir() else config.model.path
    return config.model_copy(update={"model": config.model.model_copy(update={"path": base})})


def write_model(loaded: Loaded, config: Config, folder: Path) -> None:
    """The model, its tokenizer with the dialect's chat template, and its end tokens, into ``folder``."""
    model, tokenizer = loaded.model, loaded.tokenizer
    if not tokenizer.chat_template:
        raise UserError(f"{config.model.path}: the tokenizer has no chat template, so no prompt can be written for it")
    tools = [tool for tool in DEFAULT_TOOLS if tool.name in config.tools]
    explain = config.system_prompt == "full"
    tokenizer.chat_template = chat_template(config.dialect, tokenizer.chat_template, tools, explain=explain)
    model.generation_config.eos_token_id = _end_tokens(loaded)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_merged(path: str, dtype: str) -> Loaded:
    """A checkpoint on the CPU; of an adapter, its base with the adapter folded in. Raises UserError."""
    loaded = load(path, device="cpu", dtype=dtype)
    if not (Path(path) / "adapter_config.json").is_file():
        return loaded
    import torch
    from peft import AutoPeftModelForCausalLM

    adapted = AutoPeftModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    try:
        model = adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:  # what the sum holds is not finite
        raise UserError(f"{path}: the adapter cannot be merged: {error}") from None
    return Loaded(model.eval(), loaded.tokenizer, loaded.codec)


def run_of(checkpoint: Path) -> Path | None:
    """The run folder that a checkpoint stands in."""
    place = checkpoint.resolve()
    return next((up for up in place.parents if (up / "config.yaml").is_file()), None) if place.is_dir() else None


def _target(config: Config, path: Path, run: Path | None) -> Path:
    if config.merge.folder is not None:
        return Path(config.merge.folder)
    return Path(f"{path.name}-merged") if run is None else run / "merged" / path.name


def _end_tokens(loaded: Loaded) -> list[int]:
    """What ends a turn: the model's own end tokens and the tokenizer's."""
    own: Any = loaded.model.generation_config.eos_token_id
    ids = own if isinstance(own, list) else [] if own is None else [own]
    return sorted({*ids, *loaded.codec.eos})
