"""The pipeline's model stage: one turn, prompt ids in, sampled ids and events out. The work is in
``callwright.serving.turn``."""

from callwright.serving.turn import Turn, turn

__all__ = ["Turn", "turn"]
