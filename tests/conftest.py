"""What several tests need: one numerical thread, no tracking, and a random tiny model with its own tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Before anything imports torch: on few cores more threads only wait for each other.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["WANDB_MODE"] = "disabled"  # test_tracking.py turns it on

if TYPE_CHECKING:
    from callwright.serving.models import Loaded

TEXTS = ("what is the code of BCDF?", "compute 12 plus 30.", "the answer is 42", "no results", "unknown")


@pytest.fixture(scope="session")
def tiny() -> Loaded:
    """A random Llama of two layers whose distributions are far from uniform. Shared: leave its weights as they are."""
    import torch

    from callwright.serving.engines.codec import Codec
    from callwright.serving.models import Loaded
    from callwright.serving.models.tiny import new_model, train_tokenizer
    from callwright.serving.protocol.tools import DEFAULT_TOOLS

    tokenizer = train_tokenizer(TEXTS, DEFAULT_TOOLS)
    model = new_model(
        len(tokenizer), seed=0, pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id, layers=2, width=32
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    return Loaded(model.eval(), tokenizer, Codec(tokenizer, len(tokenizer)))


@pytest.fixture(scope="session")
def random_models(tiny: Loaded) -> dict[str, Loaded]:
    """By dialect: a random model whose tokenizer has the dialect's markers as tokens of their own. Shared as well."""
    from callwright.serving.engines.codec import Codec
    from callwright.serving.models import Loaded
    from callwright.serving.models.tiny import new_model, train_tokenizer
    from callwright.serving.protocol import DEFAULT_TOOLS

    found = {"tags": tiny}
    for name in ("execute", "hermes"):
        tokenizer = train_tokenizer(TEXTS, DEFAULT_TOOLS, dialect=name)
        tokens = {"pad": tokenizer.pad_token_id, "eos": tokenizer.eos_token_id}
        model = new_model(len(tokenizer), seed=1, layers=1, width=32, **tokens).eval()
        found[name] = Loaded(model, tokenizer, Codec(tokenizer, len(tokenizer)))
    return found


@pytest.fixture(scope="session")
def saved(tiny: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in a folder: TRL reads the reference policy of beta > 0 from where the model came from."""
    folder = tmp_path_factory.mktemp("model")
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder
