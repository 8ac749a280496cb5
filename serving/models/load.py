"""Load a model and its tokenizer by name. Safetensors only; remote code stays off."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callwright.serving.engines.codec import Codec
from callwright.serving.errors import UserError
from callwright.serving.models.diagnosis import cannot_load, reports_held_back, require_template


@dataclass(frozen=True, slots=True)
class Loaded:
    """A causal LM in eval mode, its tokenizer, and the codec over both."""

    model: Any
    tokenizer: Any
    codec: Codec


def find_model(path: str) -> str:
    """The folder of ``smollm2`` or a local model, or the hub id as it is. Raises UserError where there is no such
    folder."""
    if path == "smollm2":
        from callwright.serving.models.smollm2 import ensure_smollm2

        return str(ensure_smollm2())
    if not Path(path).is_dir() and (path.startswith((".", "/")) or path.count("/") > 1):
        raise UserError(f"no model folder {path}")
    return path


def load_codec(path: str) -> Codec:
    """The codec of a model that another process runs. Raises UserError with one line when it cannot be had."""
    from transformers import AutoConfig

    source = find_model(path)
    local = Path(source).is_dir()
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, local_files_only=local)
        return Codec(_tokenizer(source, local), config.get_text_config().vocab_size)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load the tokenizer of {path}: {str(error).strip().splitlines()[0]}") from error


def load(path: str, *, device: str = "auto", dtype: str = "float32") -> Loaded:
    """Load ``smollm2``, a local folder, or a hub id. Raises UserError with one line when it cannot be had.

    ``device``: auto (cuda where there is one), cpu, cuda. ``dtype``: a torch dtype name.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    source = find_model(path)
    local = Path(source).is_dir()
    try:
        tokenizer = _tokenizer(source, local)
        with reports_held_back():
            model = AutoModelForCausalLM.from_pretrained(
                source,
                dtype=getattr(torch, dtype),
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=local,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise cannot_load(path, source, error) from error
    require_template(path, tokenizer)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return Loaded(model.to(chosen).eval(), tokenizer, Codec(tokenizer, model.config.get_text_config().vocab_size))


def _tokenizer(source: str, local: bool) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=local)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
