"""What a terminal would act on: model and tool text is shown, never obeyed."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with every control character, direction mark and half of a pair spelt out."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
