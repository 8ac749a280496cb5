"""The ``code`` tool: a shell command line in the sandbox, and the record of how it ended."""

from __future__ import annotations

import logging
from typing import Any, Literal

from callwright.envs.executors.executor import ExecutorUnavailable, Record, record_of
from callwright.envs.executors.sandbox import BareRunner, Limits, Run, SandboxError, SandboxPool
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

log = logging.getLogger(__name__)

# What a shell says of a process that its kernel limit ended: 128 + signal.
_LIMIT_SIGNALS = {128 + 24: "processor time limit", 128 + 25: "file size limit"}


class CodeExecutor:
    """Answers ``{"type":"code","status",...,"exit_code","stdout"[,"stderr"][,"truncated"][,"message"]}``.

    Exit code 0 is ok, another one is error, a limit of the sandbox is limit; ``stderr`` is there when it is not empty.
    """

    def __init__(
        self, *, sandbox: Literal["bubblewrap", "none"] = "bubblewrap", workers: int = 2, limits: Limits | None = None
    ) -> None:
        self.name = f"code/{sandbox}"
        self.runner = BareRunner(workers, limits) if sandbox == "none" else SandboxPool(workers, limits)

    async def start(self) -> None:
        try:
            await self.runner.start()
        except SandboxError as error:
            raise ExecutorUnavailable(f"{error}; or, WITHOUT ISOLATION, set sandbox: none") from error

    async def run(self, call: ToolCall) -> Record:
        return record_of_run(call, await self.runner.run(call.arguments["code_command"]))

    async def close(self) -> None:
        await self.runner.close()


def record_of_run(call: ToolCall, run: Run) -> Record:
    """The record of a program's end: see ``CodeExecutor``."""
    limit = run.limit or _limit_of(run)
    status = CallStatus.LIMIT if limit else CallStatus.OK if run.exit_code == 0 else CallStatus.ERROR
    fields: dict[str, Any] = {"exit_code": run.exit_code, "stdout": run.stdout.decode(errors="replace")}
    if run.stderr:
        fields["stderr"] = run.stderr.decode(errors="replace")
    if run.truncated:
        fields["truncated"] = True
    if limit:
        fields["message"] = f"killed: {limit}" if run.limit else limit
    return record_of(call, status, **fields)


def _limit_of(run: Run) -> str:
    """The limit that the program ran into by itself, as far as its end tells; '' for none."""
    if run.exit_code in _LIMIT_SIGNALS:
        return _LIMIT_SIGNALS[run.exit_code]
    if run.exit_code and run.stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return "memory limit"
    return ""
