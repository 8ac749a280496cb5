"""The pipeline's parsing stage. The work is in ``callwright.serving.protocol.parser``."""

from callwright.serving.protocol.parser import Parser, parse

__all__ = ["Parser", "parse"]
