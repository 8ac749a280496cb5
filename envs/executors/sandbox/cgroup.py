"""The control groups that bound all processes of one sandbox together, where this machine lets us make them.

Invariants: a group holds a sandbox's zygote and so everything that descends from it; nothing else is ever put in one; a
group is removed with its pool. Both versions are known: v1 has a folder a controller; v2 one for all, whose parent must
hand the controllers on. Where none can be made (an ordinary user's session, most containers) the sandbox does without:
its rlimits bound each process alone, and the kernel's out-of-memory killer takes the program before anything of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

REMOVE_S = 5.0  # how long processes that were killed may take to leave
_CONTROLLERS = ("memory", "pids")
_PREFIX = "callwright-"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Parents:
    """Where groups can be made: a folder a controller, and which version of cgroups it is."""

    folders: dict[str, Path]
    version: int

    @classmethod
    def find(cls) -> Parents | None:
        """The first place where a group with a memory limit can really be made; None where there is none."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = Path("/proc/self/cgroup").read_text().splitlines()
        for parents in candidates(mounts, own):
            try:
                parents.sweep()
                group = Group.make(parents, memory_bytes=1 << 30, processes=64)
            except OSError as error:
                log.debug("no control groups in %s: %s", parents.folders, error)
                continue
            group.rmdir()
            return parents
        return None

    def sweep(self) -> None:
        """Remove what a process that was killed has left behind."""
        for folder in set(self.folders.values()):
            for old in folder.glob(f"{_PREFIX}*"):
                pid = old.name.removeprefix(_PREFIX).partition("-")[0]
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    with contextlib.suppress(OSError):  # it still has processes, or is another user's
                        old.rmdir()


def candidates(mounts: list[str], own: list[str]) -> list[Parents]:
    """Where groups may be possible, by /proc/self/mountinfo and /proc/self/cgroup: under our own, or beside it."""
    points: dict[str, tuple[str, str]] = {}  # controller, or "" for v2: (root of the mount, mount point)
    for line in mounts:
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup2":
            points[""] = (root, point)
        elif kind == "cgroup":
            points.update({name: (root, point) for name in options.split(",") if name in _CONTROLLERS})
    first: dict[str, Path] = {}
    unified: list[Path] = []
    for line in own:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name not in points:
                continue
            root, point = points[name]
            folder = Path(point) / path.removeprefix(root).lstrip("/")
            if name:
                first[name] = folder
            else:
                unified = [folder] if folder == Path(point) else [folder, folder.parent]
    found = [Parents(first, 1)] if "memory" in first else []
    return found + [Parents(dict.fromkeys(_CONTROLLERS, folder), 2) for folder in unified]


class Group:
    """One sandbox's group."""

    def __init__(self, folders: dict[str, Path], version: int) -> None:
        self._folders = folders
        self._version = version

    @classmethod
    def make(cls, parents: Parents, *, memory_bytes: int, processes: int) -> Group:
        """Raises OSError where this is not the place."""
        name = f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        group = cls({key: folder / name for key, folder in parents.folders.items()}, parents.version)
        try:
            for folder in set(group._folders.values()):
                if parents.version == 2:
                    _hand_on(folder.parent)
                folder.mkdir()
            group._limit(memory_bytes, processes)
        except OSError:
            group.rmdir()
            raise
        return group

    def _limit(self, memory_bytes: int, processes: int) -> None:
        memory = self._folders["memory"]
        if self._version == 2:
            _write(memory / "memory.max", str(memory_bytes))
            swap = memory / "memory.swap.max"
            if swap.exists():
                _write(swap, "0")
        else:
            _write(memory / "memory.limit_in_bytes", str(memory_bytes))
        if "pids" in self._folders:
            _write(self._folders["pids"] / "pids.max", str(processes))

    def add(self, pid: int) -> None:
        """Put a process in, and with it all that it will fork. Raises OSError."""
        for folder in set(self._folders.values()):
            _write(folder / "cgroup.procs", str(pid))

    def killed(self) -> int:
        """How many of its processes the kernel has ended for want of memory, ever."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        for line in (self._folders["memory"] / name).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def rmdir(self) -> bool:
        """Whether it is gone now."""
        for folder in set(self._folders.values()):
            with contextlib.suppress(OSError):  # processes that were killed a moment ago are still leaving
                folder.rmdir()
        return not any(folder.exists() for folder in self._folders.values())

    async def remove(self) -> None:
        """Wait for its killed processes to leave, then remove it."""
        deadline = time.monotonic() + REMOVE_S
        while not self.rmdir():
            if time.monotonic() > deadline:
                log.warning("sandbox: a control group did not empty within %g s: %s", REMOVE_S, self._folders)
                return
            await asyncio.sleep(0.01)


def _hand_on(parent: Path) -> None:
    """Have a v2 folder give our controllers to its children. The kernel refuses where it has processes of its own."""
    control = parent / "cgroup.subtree_control"
    missing = [name for name in _CONTROLLERS if name not in control.read_text().split()]
    if missing:
        _write(control, " ".join(f"+{name}" for name in missing))


def _write(file: Path, text: str) -> None:
    """Into a file that the kernel made: where there is none, no limit is set, and none may be pretended."""
    fd = os.open(file, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
