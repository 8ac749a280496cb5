"""The host's end of one zygote: start it, run one command at a time in it, kill it.

Invariants: a worker runs at most one command at a time; every wait has a deadline; after any doubt (death, silence,
cancellation) the worker is killed as a whole and never used again; kill is idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from callwright.envs.executors.sandbox.bubblewrap import Launcher
from callwright.envs.executors.sandbox.cgroup import Group
from callwright.envs.executors.sandbox.credentials import ask_for_pids, pid_of_sender
from callwright.envs.executors.sandbox.limits import MIB, Limits, Run, SandboxError, WorkerDied
from callwright.envs.executors.sandbox.seccomp import build_filter
from callwright.envs.executors.sandbox.streams import CappedStream

START_S = 20.0  # a loaded machine starts a python slowly
GRACE_S = 10.0  # the zygote keeps the wall limit itself; this much later the host keeps it
SCRATCH_FILES = 4096


class ZygoteWorker:
    """One bubblewrap with one warm zygote."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        limits: Limits,
        owner: int | None,
        group: Group | None,
    ) -> None:
        self._process = process
        self._owner = owner
        self._control = control
        self._limits = limits
        self._group = group
        self._number = 0
        self._busy = False
        self.alive = True

    @classmethod
    async def start(cls, launcher: Launcher, limits: Limits, group: Group | None = None) -> ZygoteWorker:
        """With ``group``, in it. Raises SandboxError with bubblewrap's own line where it cannot start."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ask_for_pids(ours)
        try:
            process = launcher.spawn(theirs, limits.scratch_mb * MIB)
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {launcher.bwrap}: {error}") from error
        finally:
            theirs.close()
        worker = cls(process, ours, limits, launcher.drop, group)
        try:
            await worker._hello(launcher)
        except BaseException:
            worker.kill()
            raise
        return worker

    async def _hello(self, launcher: Launcher) -> None:
        try:
            async with asyncio.timeout(START_S):
                pid = await pid_of_sender(self._control)
                answer = await self._configure(pid, launcher) if pid else b""
        except TimeoutError:
            raise SandboxError(f"the sandbox's zygote was not ready within {START_S:g} s") from None
        except OSError as error:
            raise SandboxError(f"the sandbox's zygote cannot be confined: {error}") from error
        if not answer:
            raise SandboxError(f"the sandbox could not start: {await self._last_words()}")

    async def _configure(self, pid: int, launcher: Launcher) -> bytes:
        if self._group is not None:
            self._group.add(pid)
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # the machine is out of memory: this goes first
        config = {
            "nested": launcher.nested,
            "seccomp": build_filter().hex(),
            "rlimits": self._limits.rlimits(),
            "scratch_bytes": self._limits.scratch_mb * MIB,
            "scratch_files": SCRATCH_FILES,
        }
        with contextlib.suppress(ConnectionError):
            self._control.send(json.dumps(config).encode())
        return await self._receive()

    async def _receive(self) -> bytes:
        """The zygote's next message; b'' once it has ended. A reset is told before what it had still said."""
        for _ in range(2):
            with contextlib.suppress(ConnectionError):
                return await asyncio.get_running_loop().sock_recv(self._control, 4096)
        return b""

    async def _last_words(self) -> str:
        stderr = self._process.stderr
        if stderr is None:
            return "no message"
        os.set_blocking(stderr.fileno(), False)
        for _ in range(100):  # it has closed its socket, so it is about to end
            if self._process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        text = (stderr.read() or b"").decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "no message"

    async def run(self, command: bytes, until: float) -> Run:
        """One command, with the whole sandbox if need be killed at ``until`` (by ``time.monotonic``).

        Raises WorkerDied when the zygote ends under it; then this worker is dead.
        """
        self._busy = True
        try:
            return await self._run(command, until)
        finally:
            self._busy = False
            if not self.alive:
                self._control.close()

    async def _run(self, command: bytes, until: float) -> Run:
        loop = asyncio.get_running_loop()
        limits = self._limits
        self._number += 1
        begin = time.monotonic()
        starved = self._starved()
        with contextlib.ExitStack() as closing:
            streams: list[CappedStream] = []
            theirs = [_text_file(command)]
            try:
                for _ in range(2):
                    ours, other = os.pipe()
                    closing.callback(os.close, ours)
                    theirs.append(other)
                    if self._owner is not None:
                        os.fchown(other, self._owner, self._owner)  # or the program cannot open /dev/stdout
                    streams.append(CappedStream(ours, limits.output_bytes, limits.flood_bytes, self._stop_program))
                request = json.dumps({"run": self._number, "wall_s": limits.wall_s}).encode()
                self._send_request(request, theirs)
            finally:
                for fd in theirs:
                    os.close(fd)
            for stream in streams:
                loop.add_reader(stream.fd, _pump, loop, stream)
                closing.callback(loop.remove_reader, stream.fd)
            done = await self._until_done(until)
            for stream in streams:
                while stream.pump():
                    pass
        if done["fault"]:
            self.kill()
            raise WorkerDied(f"the sandbox could not isolate a call: {done['fault']}", started=False)
        out, err = streams
        code = done["exit"]
        limit = self._limit_hit(done["killed"], streams)
        if code and not limit and self._starved() > starved:
            limit = f"memory limit of {limits.memory_mb} MB"
        return Run(
            exit_code=code if code >= 0 else 128 - code,
            stdout=out.data,
            stderr=err.data,
            truncated=out.truncated or err.truncated,
            limit=limit,
            seconds=time.monotonic() - begin,
        )

    def _send_request(self, request: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._control, [request], fds)
        except OSError as error:
            self.kill()
            raise WorkerDied(f"the sandbox's zygote was gone: {error}", started=False) from error

    async def _until_done(self, until: float) -> dict[str, Any]:
        """What the zygote says in the end. One that has started the program and falls silent was silenced by it."""
        started = False
        try:
            async with asyncio.timeout(until - time.monotonic()):
                while message := await self._receive():
                    answer: dict[str, Any] = json.loads(message)
                    started = True
                    if answer.get("done") == self._number:
                        return answer
        except TimeoutError:
            self.kill()
            if started:
                return {"exit": -signal.SIGKILL, "killed": "time", "fault": ""}
            raise WorkerDied("the sandbox's zygote fell silent", started=False) from None
        except BaseException:
            self.kill()
            raise
        self.kill()
        raise WorkerDied("the sandbox's zygote died", started=started)

    def _starved(self) -> int:
        return 0 if self._group is None else self._group.killed()

    def _stop_program(self) -> None:
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"kill": self._number}).encode())

    def _limit_hit(self, killed: str, streams: list[CappedStream]) -> str:
        if killed == "time":
            return f"time limit of {self._limits.wall_s:g} s"
        if any(stream.total > self._limits.flood_bytes for stream in streams):
            return f"output limit of {self._limits.flood_bytes} bytes"
        return ""

    def kill(self) -> None:
        """End the zygote and everything in it, now."""
        if not self.alive:
            return
        self.alive = False
        if not self._busy:  # a run in progress has to see the end of it, and closes it then
            self._control.close()
        self._process.kill()
        self._process.wait()  # SIGKILL to a process of ours: immediate
        if self._process.stderr is not None:
            self._process.stderr.close()


def _pump(loop: asyncio.AbstractEventLoop, stream: CappedStream) -> None:
    stream.pump()
    if not stream.open:
        loop.remove_reader(stream.fd)


def _text_file(text: bytes) -> int:
    """An anonymous file holding ``text``, to pass by descriptor."""
    fd = os.memfd_create("command")
    os.write(fd, text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
