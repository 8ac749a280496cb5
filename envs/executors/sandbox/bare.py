"""No sandbox: the command runs as you, on your files, with your network. Only for `sandbox: none`.

Invariants: same limits and same results as the sandbox where rlimits can give them; the process group is killed at the
deadline, though a program that leaves its group escapes that. It says so once, loudly, at start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time

from callwright.envs.executors.sandbox.limits import Limits, Run, SandboxError, refusal
from callwright.envs.executors.sandbox.streams import CappedStream

log = logging.getLogger(__name__)

_LIMITED = 'ulimit -v "$1" -t "$2" -f "$3" -n "$4" -c 0; exec "$0" -c "$5"'


class BareRunner:
    """The sandbox pool's interface, without the sandbox."""

    name = "none"

    def __init__(self, size: int = 2, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.size = size
        self._free = asyncio.Semaphore(size)
        self._shell = ""

    async def start(self) -> None:
        self._shell = shutil.which("bash") or shutil.which("sh") or ""
        if not self._shell:
            raise SandboxError("no bash and no sh on the PATH")
        log.warning("sandbox: none: the model's commands run WITHOUT ISOLATION as uid %d on this machine", os.getuid())

    async def close(self) -> None:
        """Nothing outlives a call."""

    async def run(self, command: str) -> Run:
        refused = refusal(command.encode())
        if refused is not None:
            return refused
        async with self._free:
            with tempfile.TemporaryDirectory(prefix="callwright-") as scratch:
                return await self._run(command, scratch)

    async def _run(self, command: str, scratch: str) -> Run:
        loop = asyncio.get_running_loop()
        limits = self.limits
        begin = time.monotonic()
        flooded = asyncio.Event()
        bounds = [limits.memory_mb * 1024, limits.cpu_s, limits.scratch_mb * 2048, limits.files]
        with contextlib.ExitStack() as closing:
            pipes = [os.pipe() for _ in range(2)]
            streams = [CappedStream(r, limits.output_bytes, limits.flood_bytes, flooded.set) for r, _ in pipes]
            for stream in streams:
                closing.callback(os.close, stream.fd)
            try:
                process = await asyncio.create_subprocess_exec(
                    self._shell,
                    "-c",
                    _LIMITED,
                    self._shell,
                    *map(str, bounds),
                    command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=pipes[0][1],
                    stderr=pipes[1][1],
                    cwd=scratch,
                    env={"PATH": os.defpath, "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"},
                    start_new_session=True,
                )
            finally:
                for _, write in pipes:
                    os.close(write)
            for stream in streams:
                loop.add_reader(stream.fd, _pump, loop, stream)
                closing.callback(loop.remove_reader, stream.fd)
            limit = await self._until_done(process, flooded)
            for stream in streams:
                while stream.pump():
                    pass
        code = process.returncode or 0
        return Run(
            exit_code=code if code >= 0 else 128 - code,
            stdout=streams[0].data,
            stderr=streams[1].data,
            truncated=any(stream.truncated for stream in streams),
            limit=limit,
            seconds=time.monotonic() - begin,
        )

    async def _until_done(self, process: asyncio.subprocess.Process, flooded: asyncio.Event) -> str:
        ended, flood = asyncio.ensure_future(process.wait()), asyncio.ensure_future(flooded.wait())
        try:
            await asyncio.wait({ended, flood}, timeout=self.limits.wall_s, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ""
            if flood.done():
                return f"output limit of {self.limits.flood_bytes} bytes"
            return f"time limit of {self.limits.wall_s:g} s"
        finally:
            flood.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await ended


def _pump(loop: asyncio.AbstractEventLoop, stream: CappedStream) -> None:
    stream.pump()
    if not stream.open:
        loop.remove_reader(stream.fd)
