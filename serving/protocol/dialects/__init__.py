"""The text dialects by name. A further dialect is one module and one entry here."""

from callwright.serving.protocol.dialects.base import Dialect, Piece
from callwright.serving.protocol.dialects.execute import Execute
from callwright.serving.protocol.dialects.hermes import Hermes
from callwright.serving.protocol.dialects.tags import Tags

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (Tags(), Execute(), Hermes())}


def get_dialect(name: str) -> Dialect:
    """The dialect of that name; ``ValueError`` names the known ones."""
    if name not in DIALECTS:
        raise ValueError(f"unknown dialect {name!r}: one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


__all__ = ["DIALECTS", "Dialect", "Execute", "Hermes", "Piece", "Tags", "get_dialect"]
