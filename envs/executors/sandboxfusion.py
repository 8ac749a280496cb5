"""Commands run by a remote server of SandboxFusion's shape: POST /run_code, one JSON object there and one back.

Invariants: every exchange ends by its deadline, however slowly the server speaks, and leaves no open connection. What
the server cannot do (unreachable, an HTTP error, no JSON of that shape, silence) raises SandboxError: our fault. What
the program did (its exit code, its time, its flood) is in the ``Run``. A run that fails in the server twice, while a
plain program runs there, was failed by its program. The isolation is the server's; nothing here checks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ValidationError

from callwright.envs.executors.sandbox.limits import Limits, Run, SandboxError, refusal

log = logging.getLogger(__name__)

GRACE_S = 10.0  # beyond the program's own time limit
PROBE_S = 3.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # no other than a flooding program makes the server say more


class _Ran(BaseModel):
    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Answer(BaseModel):
    status: Literal["Success", "Failed", "SandboxError"]
    message: str | None = None
    run_result: _Ran | None = None


class _RunFailed(SandboxError):
    """The server works and says that this run did not."""


class _Flood(Exception):
    """The answer is longer than anyone reads."""


class SandboxFusion:
    """The sandbox pool's interface, with ``workers`` exchanges at once. ``url`` may have a path before /run_code."""

    name = "sandboxfusion"

    def __init__(self, url: str, workers: int = 2, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._url = urlsplit(url.rstrip("/") + "/run_code")
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandboxfusion")

    async def start(self) -> None:
        """Run a plain program. Raises SandboxError with one clear line."""
        run = await self._run("echo $((6*7)) | cat", time.monotonic() + self.limits.wall_s + GRACE_S)
        if run.stdout.strip() != b"42":
            raise SandboxError(f"{self._url.geturl()} does not run a plain program: {run}")

    async def run(self, command: str) -> Run:
        """Run one shell command line. Raises SandboxError when the server, not the command, failed."""
        refused = refusal(command.encode())
        if refused is not None:
            return refused
        until = time.monotonic() + self.limits.wall_s + GRACE_S
        try:
            return await self._run(command, until)
        except _RunFailed as first:
            log.warning("sandboxfusion: %s; running the call again", first)
            try:
                return await self._run(command, until)
            except SandboxError as again:
                # Raises where the plain program fails too: then it is the server.
                await self._run("true", time.monotonic() + PROBE_S)
                return Run(137, b"", b"", limit=f"the program failed its sandbox twice: {again}"[:300])

    async def _run(self, command: str, until: float) -> Run:
        request = {
            "code": command,
            "language": "bash",
            "run_timeout": self.limits.wall_s,
            "memory_limit_MB": self.limits.memory_mb,
            "files": {},
        }
        begin = time.monotonic()
        try:
            data = await self._post(json.dumps(request).encode(), until)
        except _Flood:
            return self._flooded(b"", b"", begin)
        try:
            answer = _Answer.model_validate_json(data)
        except ValidationError as error:
            raise SandboxError(f"{self._url.geturl()} answered out of shape: {error.errors()[0]['msg']}") from None
        return self._read(answer, begin)

    async def _post(self, body: bytes, until: float) -> bytes:
        seconds = max(0.001, until - time.monotonic())
        exchange = _Exchange(self._url, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, exchange.post, body)
        except TimeoutError:
            raise SandboxError(f"{self._url.geturl()} gave no answer within {seconds:.0f} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise SandboxError(f"{self._url.geturl()}: {type(error).__name__}: {error}") from error
        finally:
            exchange.abort()

    def _read(self, answer: _Answer, begin: float) -> Run:
        ran = answer.run_result
        if answer.status == "SandboxError" or ran is None or ran.status == "Error":
            words = (answer.message or "no message").strip().splitlines()
            raise _RunFailed(f"{self._url.geturl()} could not run it: {words[0][:200] if words else 'no message'}")
        out, err = (ran.stdout or "").encode(errors="replace"), (ran.stderr or "").encode(errors="replace")
        if max(len(out), len(err)) > self.limits.flood_bytes:
            return self._flooded(out, err, begin)
        limit = f"time limit of {self.limits.wall_s:g} s" if ran.status == "TimeLimitExceeded" else ""
        code = 137 if limit else ran.return_code
        if code is None:
            raise SandboxError(f"{self._url.geturl()} answered out of shape: a finished run has no return code")
        return self._cut(code if code >= 0 else 128 - code, out, err, limit, begin)

    def _flooded(self, out: bytes, err: bytes, begin: float) -> Run:
        return self._cut(137, out, err, f"output limit of {self.limits.flood_bytes} bytes", begin)

    def _cut(self, code: int, out: bytes, err: bytes, limit: str, begin: float) -> Run:
        keep = self.limits.output_bytes
        longer = max(len(out), len(err)) > keep
        return Run(code, out[:keep], err[:keep], longer, limit, time.monotonic() - begin)

    async def close(self) -> None:
        """Open exchanges end by their own deadlines."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Exchange:
    """One request and its answer, in a thread. ``abort`` from another thread ends it wherever it is."""

    def __init__(self, url: SplitResult, seconds: float) -> None:
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname or "", url.port, timeout=seconds)
        self._path = url.path
        self._socket: socket.socket | None = None
        self._over = False

    def post(self, body: bytes) -> bytes:
        """Raises OSError, HTTPException, SandboxError for a status other than 200, _Flood."""
        with contextlib.closing(self._connection) as connection:
            connection.connect()
            self._socket = connection.sock
            if self._over:
                raise TimeoutError("given up while connecting")
            headers = {"content-type": "application/json", "connection": "close"}
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES + 1)
            if answer.status != 200:
                words = " ".join(data[:200].decode(errors="replace").split())
                raise SandboxError(f"the sandbox server answered {answer.status} {answer.reason}: {words}")
            if len(data) > MAX_ANSWER_BYTES:
                raise _Flood
            return data

    def abort(self) -> None:
        self._over = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is over already
                self._socket.shutdown(socket.SHUT_RDWR)
