"""Models by name: ``tiny`` (made here), ``smollm2`` (from a PyPI package), a hub id, or a local folder."""

from callwright.serving.models.load import Loaded, find_model, load, load_codec

__all__ = ["Loaded", "find_model", "load", "load_codec"]
