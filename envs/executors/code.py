"""The ``code`` tool: a shell command line in a sandbox, here or on a server, and the record of how it ended."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from callwright.envs.executors.executor import ExecutorUnavailable, Record, record_of
from callwright.envs.executors.sandbox import BareRunner, Run, SandboxError, SandboxPool
from callwright.envs.executors.sandboxfusion import SandboxFusion
from callwright.envs.executors.settings import CodeSettings
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

log = logging.getLogger(__name__)

# What a shell says of a process that its kernel limit ended: 128 + signal.
_LIMIT_SIGNALS = {128 + 24: "processor time limit", 128 + 25: "file size limit"}


class Runner(Protocol):
    """What runs command lines. Whatever it raises as SandboxError is its own fault, never the command's."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None: ...

    async def run(self, command: str) -> Run: ...

    async def close(self) -> None: ...


def runner_of(settings: CodeSettings) -> Runner:
    """The settings' own; nothing of it is started."""
    if settings.url is not None:
        return SandboxFusion(settings.url, settings.workers, settings.limits)
    if settings.sandbox == "none":
        return BareRunner(settings.workers, settings.limits)
    return SandboxPool(settings.workers, settings.limits)


class CodeExecutor:
    """Answers ``{"type":"code","status",...,"exit_code","stdout"[,"stderr"][,"truncated"][,"message"]}``.

    Exit code 0 is ok, another one is error, a limit of the sandbox is limit; ``stderr`` is there when it is not empty.
    """

    def __init__(self, settings: CodeSettings, runner: Runner | None = None) -> None:
        self.runner = runner or runner_of(settings)
        self.name = f"code/{self.runner.name}"

    async def start(self) -> None:
        try:
            await self.runner.start()
        except SandboxError as error:
            bare = "; or, WITHOUT ISOLATION, set sandbox: none" if isinstance(self.runner, SandboxPool) else ""
            raise ExecutorUnavailable(f"{error}{bare}") from error

    async def run(self, call: ToolCall) -> Record:
        return _record(call, await self.runner.run(call.arguments["code_command"]))

    async def close(self) -> None:
        await self.runner.close()


def _record(call: ToolCall, run: Run) -> Record:
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
