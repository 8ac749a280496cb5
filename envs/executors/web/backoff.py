"""How long to wait before another attempt."""

from __future__ import annotations

import random
import time
from email.utils import parsedate_to_datetime

BASE_S = 0.5  # doubled with every attempt


def backoff_s(attempt: int, *address: object) -> float:
    """Seconds to wait after the ``attempt``-th attempt (from 1): from half of 0.5 s, 1 s, 2 s, ... to one and a half.

    The jitter is addressed like every random number: the same search waits alike on a rerun, different ones differ.
    """
    jitter = random.Random("|".join(map(str, ("web-backoff", attempt, *address)))).random()
    spread: float = BASE_S * 2.0 ** (attempt - 1) * (0.5 + jitter)
    return spread


def retry_after_s(header: str | None) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date; 0 where it says nothing that is understood."""
    if not header:
        return 0.0
    header = header.strip()
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
