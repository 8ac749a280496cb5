"""A fixed number of warm workers behind one ``run``.

Invariants: the pool fails closed (a probe at start runs real programs in it, or start raises); a dead worker is
replaced before its slot serves again; no call waits for a slot without a deadline. A call whose worker dies is run once
more on a fresh one, which is safe because a call has no state outside its worker; a program that brings down the fresh
one too has done it itself, and is charged for it. Both together take no longer than one whose zygote falls silent, so
that no program can last until a deadline of ours and pass for our fault.

Each slot has a control group where this machine allows one. Two modes, chosen by the probe. *Nested*: a zygote serves
many calls, each in fresh namespaces. *Disposable*, where nested namespaces are not permitted: a zygote serves one call
and is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator

from callwright.envs.executors.sandbox.bubblewrap import Launcher
from callwright.envs.executors.sandbox.cgroup import Group, Parents
from callwright.envs.executors.sandbox.limits import Limits, Run, SandboxError, WorkerDied, refusal
from callwright.envs.executors.sandbox.walls import check, looks
from callwright.envs.executors.sandbox.worker import GRACE_S, ZygoteWorker

log = logging.getLogger(__name__)

_USER_NAMESPACES = (
    "the sandbox needs unprivileged user namespaces; "
    "on Ubuntu run: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)


class _Slot:
    """A place for one worker, which may be dead, and the control group that its workers run in, one after the other."""

    def __init__(self, group: Group | None) -> None:
        self.group = group
        self.worker: ZygoteWorker | None = None


class SandboxPool:
    """``size`` warm sandboxes. ``nested=False`` asks for the disposable mode."""

    name = "bubblewrap"

    def __init__(
        self, size: int = 2, limits: Limits | None = None, *, nested: bool = True, slot_wait_s: float = 60.0
    ) -> None:
        self.limits = limits or Limits()
        self.size = size
        self.restarts = 0
        self.mode = "not started"
        self.grouped = False  # whether control groups bound each sandbox as a whole
        self._nested = nested
        self._slot_wait_s = slot_wait_s
        self._launcher: Launcher | None = None
        self._slots: list[_Slot] = []
        self._free: asyncio.Queue[_Slot] = asyncio.Queue()

    async def start(self) -> None:
        """Probe, choose the mode, warm every worker. Raises SandboxError with one clear line."""
        try:
            self._make_slots(Parents.find())
            self._launcher = await self._choose()
            for slot in self._slots:
                await self._ready(slot)
        except BaseException:
            await self.close()
            raise
        for slot in self._slots:
            self._free.put_nowait(slot)

    def _make_slots(self, parents: Parents | None) -> None:
        self.grouped = parents is not None
        memory_bytes, processes = self.limits.group_bytes(), self.limits.group_processes()
        for _ in range(self.size):
            try:
                made = None if parents is None else Group.make(parents, memory_bytes=memory_bytes, processes=processes)
            except OSError as error:
                raise SandboxError(f"cannot make the sandbox's control group: {error}") from error
            self._slots.append(_Slot(made))

    async def _choose(self) -> Launcher:
        """The fastest mode whose walls all stand."""
        launcher = dataclasses.replace(Launcher.find(), nested=self._nested)
        try:
            await self._probe(launcher, self._slots[0])
        except SandboxError as error:
            if not launcher.nested:
                raise SandboxError(f"{error} ({_USER_NAMESPACES})") from error
            log.warning("sandbox: no nested namespaces here (%s): one bubblewrap a call, slower", error)
            self._nested = False
            return await self._choose()
        if not launcher.nested and not launcher.sized:
            raise SandboxError(
                "without nested namespaces the sandbox needs bubblewrap 0.7 or newer, to cap its scratch"
            )
        self.mode = "nested" if launcher.nested else "disposable"
        return launcher

    async def _probe(self, launcher: Launcher, slot: _Slot) -> None:
        """Look at the walls from inside, by both ways that a program can come in. Leaves a worker in the slot."""
        self._launcher = launcher
        try:
            with looks() as commands:
                for command in commands:
                    worker = await self._ready(slot)
                    check(await self._run_in(worker, command, time.monotonic() + self.limits.wall_s + GRACE_S))
        except BaseException:
            if slot.worker is not None:
                slot.worker.kill()
            raise

    async def run(self, command: str) -> Run:
        """Run one shell command line. Raises SandboxError when the sandbox, not the command, failed."""
        text = command.encode()
        refused = refusal(text)
        if refused is not None:
            return refused
        async with self._slot() as slot:
            worker = await self._ready(slot)
            begin = time.monotonic()
            until = begin + self.limits.wall_s + GRACE_S
            try:
                return await self._run_in(worker, text, until)
            except WorkerDied as first:
                if first.started and time.monotonic() - begin > self.limits.wall_s:
                    return Run(137, b"", b"", limit="the program held its sandbox past the time limit")
                log.warning("sandbox: %s; running the call on a fresh worker", first)
            try:
                return await self._run_in(await self._ready(slot), text, until)
            except WorkerDied as again:
                if not again.started:
                    raise
                return Run(137, b"", b"", limit="the program brought down two fresh sandboxes")

    async def _ready(self, slot: _Slot) -> ZygoteWorker:
        """The slot's worker, a fresh one where it is dead."""
        if self._launcher is None:
            raise SandboxError("the sandbox pool is not started")
        if slot.worker is None or not slot.worker.alive:
            self.restarts += slot.worker is not None
            slot.worker = await ZygoteWorker.start(self._launcher, self.limits, slot.group)
        return slot.worker

    async def _run_in(self, worker: ZygoteWorker, text: bytes, until: float) -> Run:
        try:
            return await worker.run(text, until)
        finally:
            if not self._nested:
                worker.kill()

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[_Slot]:
        try:
            async with asyncio.timeout(self._slot_wait_s):
                slot = await self._free.get()
        except TimeoutError:
            raise SandboxError(f"waited {self._slot_wait_s:g} s for a free sandbox of {self.size}") from None
        try:
            yield slot
        finally:
            self._free.put_nowait(slot)

    async def close(self) -> None:
        """Kill every worker. Safe to call twice, and after a failed start."""
        slots, self._slots, self._launcher = self._slots, [], None
        for slot in slots:
            if slot.worker is not None:
                slot.worker.kill()
        for slot in slots:
            if slot.group is not None:
                await slot.group.remove()
