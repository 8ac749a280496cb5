"""Processes of ours that must not outlive the one that started them."""

from __future__ import annotations

import shutil


def with_parent() -> list[str]:
    """What goes in front of a command, so that on Linux the kernel asks it to stop when the thread that started it is
    gone, however that ended. Nothing where util-linux is not installed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []
