"""Why a model folder cannot be loaded, in words that say what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callwright.serving.errors import UserError

_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "tekken.json", "*.tiktoken")


def cannot_load(path: str, source: str, error: Exception) -> UserError:
    """The error for ``error``, which loading the model ``path`` from ``source`` (a folder or a hub id) raised."""
    return UserError(f"cannot load the model {path}: {_missing(Path(source)) or _said(error)}")


@contextmanager
def reports_held_back() -> Iterator[None]:
    """Keep the library's table of unfitting weights until loading has succeeded: of a failure one line tells."""
    held: list[logging.LogRecord] = []

    def hold(record: logging.LogRecord) -> bool:
        held.append(record)
        return False

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(hold)
    try:
        yield
    except BaseException:
        held.clear()
        raise
    finally:
        logger.removeFilter(hold)
        for record in held:
            logger.handle(record)


def require_template(path: str, tokenizer: object) -> None:
    """Raises UserError for a tokenizer that cannot frame a conversation."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise UserError(
            f"the tokenizer of {path} has no chat template: put a chat_template.jinja beside it, or take a model that "
            "was trained on instructions"
        )


def _missing(folder: Path) -> str:
    """What a local folder lacks; '' where it lacks nothing, or is none."""
    if not folder.is_dir():
        return ""
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return "it has no config.json; name a model's folder, such as runs/NAME/checkpoints/step-N"
    if not any(True for pattern in _TOKENIZERS for _ in folder.glob(pattern)):
        return "it has no tokenizer; copy tokenizer.json and tokenizer_config.json of its base model into it"
    if not any(folder.glob("*.safetensors")):
        return "it has no weights; they have to be *.safetensors"
    return ""


def _said(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if type(error).__name__ == "SafetensorError":
        return f"a safetensors file is damaged ({first}); copy it again"
    if "ignore_mismatched_sizes" in first:
        return "its weights do not have the shapes that its config.json says; they belong to another model"
    return first
