"""A fixed number of warm workers behind one ``run``.

Invariants: the pool fails closed (a probe at start runs real programs in it, or start raises); a dead worker is
replaced before its slot serves again; no call waits for a slot without a deadline. A call whose worker dies is run once
more on a fresh one, which is safe because a call has no state outside its worker; a program that brings down the fresh
one too has done it itself, and is charged for it.

Two modes, chosen by the probe. *Nested*: a zygote serves many calls, each in fresh namespaces. *Disposable*, where
nested namespaces are not permitted: a zygote serves one call and is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator

from callwright.envs.executors.sandbox.bubblewrap import Launcher
from callwright.envs.executors.sandbox.limits import MAX_COMMAND_BYTES, Limits, Run, SandboxError, WorkerDied
from callwright.envs.executors.sandbox.worker import ZygoteWorker

log = logging.getLogger(__name__)

_USER_NAMESPACES = (
    "the sandbox needs unprivileged user namespaces; "
    "on Ubuntu run: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
_PROBES = (b"python3 -c 'print(6*7)'", b"echo $((6*7)) | cat")


class _Slot:
    """A place for one worker, which may be dead."""

    worker: ZygoteWorker | None = None


class SandboxPool:
    """``size`` warm sandboxes. ``nested=False`` asks for the disposable mode."""

    def __init__(
        self, size: int = 2, limits: Limits | None = None, *, nested: bool = True, slot_wait_s: float = 60.0
    ) -> None:
        self.limits = limits or Limits()
        self.size = size
        self.restarts = 0
        self.mode = "not started"
        self._nested = nested
        self._slot_wait_s = slot_wait_s
        self._launcher: Launcher | None = None
        self._slots: list[_Slot] = []
        self._free: asyncio.Queue[_Slot] = asyncio.Queue()

    async def start(self) -> None:
        """Probe, choose the mode, warm every worker. Raises SandboxError with one clear line."""
        launcher, first = await self._choose()
        self._launcher = launcher
        self._slots = [_Slot() for _ in range(self.size)]
        self._slots[0].worker = first
        try:
            for slot in self._slots[1:]:
                slot.worker = await ZygoteWorker.start(launcher, self.limits)
        except BaseException:
            await self.close()
            raise
        for slot in self._slots:
            self._free.put_nowait(slot)

    async def _choose(self) -> tuple[Launcher, ZygoteWorker]:
        """The fastest mode that a probe passes in, and the worker that passed."""
        launcher = dataclasses.replace(Launcher.find(), nested=self._nested)
        try:
            worker = await self._probe(launcher)
        except SandboxError as error:
            if not launcher.nested:
                raise SandboxError(f"{error} ({_USER_NAMESPACES})") from error
            log.warning("sandbox: no nested namespaces here (%s): one bubblewrap a call, slower", error)
            self._nested = False
            return await self._choose()
        self.mode = "nested" if launcher.nested else "disposable"
        return launcher, worker

    async def _probe(self, launcher: Launcher) -> ZygoteWorker:
        worker = await ZygoteWorker.start(launcher, self.limits)
        try:
            for command in _PROBES:
                result = await worker.run(command)
                if result.stdout != b"42\n":
                    raise SandboxError(f"the sandbox's probe failed: {result}")
                if not launcher.nested:
                    worker.kill()
                    worker = await ZygoteWorker.start(launcher, self.limits)
        except BaseException:
            worker.kill()
            raise
        return worker

    async def run(self, command: str) -> Run:
        """Run one shell command line. Raises SandboxError when the sandbox, not the command, failed."""
        text = command.encode()
        if len(text) > MAX_COMMAND_BYTES or b"\0" in text:
            what = "a NUL character" if b"\0" in text else f"more than {MAX_COMMAND_BYTES} bytes"
            return Run(126, b"", f"the command holds {what}\n".encode())
        async with self._slot() as slot:
            try:
                return await self._run_in(slot, text)
            except WorkerDied as first:
                log.warning("sandbox: %s; running the call on a fresh worker", first)
            try:
                return await self._run_in(slot, text)
            except WorkerDied as again:
                if not again.started:
                    raise
                return Run(137, b"", b"", limit="the program brought down two fresh sandboxes")

    async def _run_in(self, slot: _Slot, text: bytes) -> Run:
        launcher = self._launcher
        if launcher is None:
            raise SandboxError("the sandbox pool is not started")
        worker = slot.worker
        if worker is None or not worker.alive:
            self.restarts += 1
            worker = slot.worker = await ZygoteWorker.start(launcher, self.limits)
        try:
            return await worker.run(text)
        finally:
            if not launcher.nested:
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
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.kill()
        self._slots = []
        self._launcher = None
