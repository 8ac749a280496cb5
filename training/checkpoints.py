"""Checkpoints that are whole or absent.

Invariant: a folder ``step-N`` counts only with its marker file, which is written last: files are written aside and
fsynced, the folder is renamed, its parent fsynced, then the marker appears. A kill at any moment leaves the previous
checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callwright.serving.errors import UserError
from callwright.training.full_disk import told_by_the_disk

MARKER = "COMPLETE"
BEST = "BEST"  # in the one checkpoint that pruning spares; it holds the success that made it the best
WARM_STARTS = Path(__file__).parent / "warm_starts"
_NAME = re.compile(r"step-(\d+)")


@contextmanager
def publish(folder: Path, step: int) -> Iterator[Path]:
    """Give a staging folder to write into; on a clean exit it becomes ``folder/step-N``, complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*.tmp"):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    target = folder / f"step-{step}"
    with whole_folder(target, replace=True) as staging:
        yield staging
    (target / MARKER).touch()
    fsync(target / MARKER)
    fsync(target)


@contextmanager
def whole_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a staging folder to write into; on a clean exit it is synced and becomes ``target``.

    ``replace``: in the place of a checkpoint that is there, whose marker goes first; else ``target`` must not exist.
    """
    staging = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    staging.mkdir(parents=True)
    try:
        with told_by_the_disk(target.parent):
            yield staging
            for path in (*staging.rglob("*"), staging):
                fsync(path)
        if replace and target.exists():  # a leftover without marker, or the same step again after a resume
            (target / MARKER).unlink(missing_ok=True)
            shutil.rmtree(target)
        staging.rename(target)
        fsync(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def complete(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every complete checkpoint, oldest first."""
    found = []
    for path in folder.glob("step-*") if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and (path / MARKER).is_file():
            found.append((int(match[1]), path))
    return sorted(found)


def latest(folder: Path) -> tuple[int, Path] | None:
    """The newest complete checkpoint, if there is one."""
    found = complete(folder)
    return found[-1] if found else None


def resolve_checkpoint(path: str) -> str:
    """A run folder stands for its newest complete checkpoint; ``quickstart`` for the shipped warm start.

    Raises UserError for ``tiny``, which is made by training it.
    """
    newest = latest(Path(path) / "checkpoints")
    if newest is not None:
        return str(newest[1])
    if path == "tiny":
        raise UserError("tiny is made by training it: name a checkpoint, or `quickstart` for the shipped warm start")
    shipped = WARM_STARTS / path
    return str(shipped) if shipped.is_dir() else path


def best(folder: Path) -> tuple[Path, float] | None:
    """The complete checkpoint that is marked as the best, with its success."""
    marked = [path for _, path in complete(folder) if (path / BEST).is_file()]
    return (marked[-1], float((marked[-1] / BEST).read_text())) if marked else None


def mark_best(path: Path, success: float) -> None:
    """Mark this complete checkpoint as the best, in the place of another one. A kill in between leaves both marked,
    and the newer one counts."""
    aside = path / f".{BEST}"
    aside.write_text(f"{success!r}\n")
    aside.replace(path / BEST)
    for _, other in complete(path.parent):
        if other != path:
            (other / BEST).unlink(missing_ok=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the best and the newest ``keep`` complete checkpoints; the marker goes first. 0 keeps all."""
    for _, path in complete(folder)[: -keep or None] if keep else ():
        if not (path / BEST).is_file():
            (path / MARKER).unlink()
            shutil.rmtree(path)


def fsync(path: Path) -> None:
    """Bring a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
