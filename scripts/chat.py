"""``callwright chat``: talk to a checkpoint; its events stream as they come and its calls are run."""

from __future__ import annotations

from callwright.scripts.common import Overrides, config_of_checkpoint, train_extra
from callwright.scripts.eval import CheckpointArgument, ConfigOption


def chat(checkpoint: CheckpointArgument, overrides: Overrides = None, config: ConfigOption = None) -> None:
    """Chat with a checkpoint. It reads questions from standard input, one a line, and runs the tools it calls."""
    resolved = config_of_checkpoint(checkpoint, overrides or [], config)
    with train_extra():
        from callwright.training.chat import chat as run_chat

        run_chat(resolved)
