"""Every file operation of a process, counted: before the n-th one the process is killed, or its disk is full.

Counted are the opens for writing, renames, removals, new folders and syncs that Python makes below the folder ``runs``
of the process. What libraries write in C goes into the staging folder of a checkpoint, between two of these.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
BALLAST = "ballast"


@dataclass(slots=True)
class AtWrite:
    """``act`` before operation number ``moment`` (from 1). ``tally`` is a file that receives one byte an operation."""

    tally: Path
    moment: int = 0
    act: Literal["kill", "fill"] = "kill"
    _count: int = 0
    _acting: bool = False

    def arm(self) -> None:
        root = os.path.abspath("runs")
        out = os.open(self.tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sync = os.fsync

        def operation() -> None:
            if self._acting:
                return
            self._count += 1
            os.write(out, b".")
            if self._count == self.moment:
                self._acting = True
                self._do(Path(root))
                self._acting = False

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if _changes(event, args, root):
                operation()

        def counted(file: int) -> None:
            operation()
            sync(file)

        sys.addaudithook(hook)
        os.fsync = counted

    def _do(self, root: Path) -> None:
        if self.act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        fill(root.parent / BALLAST)


def _changes(event: str, args: tuple[Any, ...], root: str) -> bool:
    if event == "open":
        path, _, flags = args
        return bool(flags & _WRITES) and _below(path, root)
    if event not in _CHANGES:
        return False
    return _below(args[0], root) or (event in ("os.remove", "os.rmdir") and args[1] != -1)  # of a folder that goes


def _below(path: Any, root: str) -> bool:
    return not isinstance(path, int) and os.path.abspath(os.fsdecode(path)).startswith(root)


def fill(ballast: Path) -> None:
    """Take all the room that the file system of ``ballast`` has."""
    out = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = 1 << 16
    while size:
        try:
            os.write(out, bytes(size))
        except OSError:
            size //= 2
    os.close(out)


def count(tally: Path) -> int:
    """How many operations there were."""
    return tally.stat().st_size
