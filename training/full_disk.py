"""A disk without room ends a run with one line that says where, and how to go on.

torch and safetensors write in C++ and Rust and say it in errors of their own, or in none that one could know it by:
``told_by_the_disk`` asks the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callwright.serving.errors import CallwrightError, RunError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_LITTLE = 1 << 20  # bytes free, below which a failed write is one for want of room


@contextmanager
def told_by_the_disk(folder: Path) -> Iterator[None]:
    """What fails in the block while the disk of ``folder`` has no room is raised as OSError that says so."""
    try:
        yield
    except Exception as error:
        if shutil.disk_usage(folder).free < _LITTLE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


@contextmanager
def one_line_when_full(folder: Path, go_on: str) -> Iterator[None]:
    """Turn the OSError of a full disk into RunError, for the record in ``folder``; ``go_on`` is the command then."""
    try:
        yield
    except CallwrightError:
        raise
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise RunError(
            f"{error.filename or folder}: {os.strerror(error.errno)}; what was complete in {folder} still is: make "
            f"room, then go on with: {go_on}"
        ) from error
