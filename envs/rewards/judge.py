"""A scorer that may hang or fall over on a model's text, in a process of its own: asked line by line, killed when late.

Invariants: one question at a time; a question has one deadline; a process that missed it, or ended, is killed and never
asked again: the next question starts a new one. The process ends with ours, because its standard input ends then.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

START_S = 120.0  # for the process to import its library, on a machine that is busy
_MEMORY_BYTES = 2 * 2**30
_READY = b"ready\n"

Question = Mapping[str, Any]


class JudgeBroken(RuntimeError):
    """The judge could not be started: a fault of ours, never a verdict."""


class Judge:
    """``Judge("package.module")`` runs a module that calls ``serve_questions``."""

    def __init__(self, module: str, *, deadline_s: float = 10.0) -> None:
        self._module = module
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    async def ask(self, question: Question) -> bool:
        """The verdict; False where the text kept the judge beyond its deadline or brought it down.

        Raises JudgeBroken.
        """
        return bool(await self.answer(question))

    async def answer(self, question: Question) -> Any:
        """What the judge says, JSON; None where it was late or fell, False where its own code failed.

        Raises JudgeBroken.
        """
        return await asyncio.to_thread(self._ask, question)

    def close(self) -> None:
        """End the process. The next question starts another one."""
        with self._lock:
            self._kill()

    def _ask(self, question: Question) -> Any:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                line = _line(process, self._deadline_s)
            except OSError:  # it ended before it read the question
                line = None
            if line is None:
                self._kill()
                return None
            return json.loads(line)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        with tempfile.TemporaryFile() as errors:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            # Unbuffered, or `select` would not see what a buffer already holds.
            self._process = subprocess.Popen([sys.executable, "-m", self._module], bufsize=0, **pipes)
            if _line(self._process, START_S) != _READY:
                self._kill()
                raise JudgeBroken(f"the judge {self._module} did not start: {_last_line(errors)}")
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def serve_questions(verdict: Callable[[Question], Any]) -> None:
    """The judge's own side: answer each line of standard input until it ends. What ``verdict`` raises is a no."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # A library that prints must not answer for us.
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    replies.write(_READY)
    for line in sys.stdin.buffer:
        try:
            said = json.dumps(verdict(json.loads(line)))
        except Exception as error:  # the text of a model may break a library in any way
            print(f"{type(error).__name__}: {error}"[:500], file=sys.stderr)
            said = "false"
        replies.write(said.encode() + b"\n")


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """The next line that the process says; None where it ended, or said none in time."""
    assert process.stdout is not None
    closing, said = time.monotonic() + seconds, b""
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, closing - time.monotonic()))
        piece = process.stdout.read(1) if ready else b""
        if not piece:
            return None
        said += piece
    return said


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
