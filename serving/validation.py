"""The pipeline's validation stage. The work is in ``callwright.serving.protocol.validation``."""

from callwright.serving.protocol.validation import validate

__all__ = ["validate"]
