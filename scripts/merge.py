"""``callwright merge``: a checkpoint as a model folder that any program loads."""

from __future__ import annotations

from callwright.scripts.common import Overrides, config_of_checkpoint, train_extra
from callwright.scripts.eval import CheckpointArgument, ConfigOption


def merge(checkpoint: CheckpointArgument, overrides: Overrides = None, config: ConfigOption = None) -> None:
    """Write a checkpoint as a hub-shaped folder (merge.folder=DIR): adapters folded in, chat template, model card."""
    resolved = config_of_checkpoint(checkpoint, overrides or [], config)
    with train_extra():
        from callwright.training.merge import merge as write_merged

        print(write_merged(resolved))
