"""What one sandboxed call may use, and what comes back from it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MIB = 1024 * 1024
MAX_COMMAND_BYTES = 128 * 1024 - 1  # one argument of execve (MAX_ARG_STRLEN)


class SandboxError(Exception):
    """The sandbox itself failed: never the fault of the program that was to run in it."""


class WorkerDied(SandboxError):
    """The worker process ended under a call. ``started`` says whether the program may have run."""

    def __init__(self, message: str, *, started: bool) -> None:
        super().__init__(message)
        self.started = started


class Limits(BaseModel):
    """Bounds of one call. Every one of them is the policy's to keep: to hit one is that call's fault, not ours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall_s: float = Field(default=10.0, gt=0, description="seconds from start to end")
    cpu_s: int = Field(default=10, ge=1, description="processor seconds of one process")
    memory_mb: int = Field(default=512, ge=64, description="address space of one process; of all, see group_bytes")
    processes: int = Field(default=32, ge=4, description="processes and threads alive at once")
    files: int = Field(default=128, ge=16, description="open files of one process")
    scratch_mb: int = Field(default=32, ge=1, description="size of the scratch folder, and of one file")
    output_bytes: int = Field(default=64 * 1024, ge=1, description="kept of each of stdout and stderr; the rest is cut")
    flood_bytes: int = Field(default=MIB, ge=1, description="output at which a call is killed")

    def rlimits(self) -> list[tuple[str, int, int]]:
        """(name, soft, hard) triples for setrlimit."""
        memory, scratch = self.memory_mb * MIB, self.scratch_mb * MIB
        # Three processes are the sandbox's own: bubblewrap's init, the zygote, the warden.
        processes = self.processes + 3
        return [
            ("RLIMIT_AS", memory, memory),
            ("RLIMIT_CPU", self.cpu_s, self.cpu_s + 1),
            ("RLIMIT_FSIZE", scratch, scratch),
            ("RLIMIT_NPROC", processes, processes),
            ("RLIMIT_NOFILE", self.files, self.files),
            ("RLIMIT_CORE", 0, 0),
            ("RLIMIT_MEMLOCK", 0, 0),
            ("RLIMIT_MSGQUEUE", 0, 0),
            ("RLIMIT_SIGPENDING", self.files, self.files),
            ("RLIMIT_NICE", 0, 0),
            ("RLIMIT_RTPRIO", 0, 0),
        ]

    def group_bytes(self) -> int:
        """Memory of everything in one sandbox together: a program's own, its scratch, and what the zygote takes."""
        return (self.memory_mb + self.scratch_mb + 64) * MIB

    def group_processes(self) -> int:
        """Processes and threads of one sandbox: the program's, the zygote and the warden."""
        return self.processes + 2


@dataclass(frozen=True, slots=True)
class Run:
    """How one command ended. ``exit_code`` is a shell's (128 + signal); ``limit`` names the limit it hit, or ''."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    limit: str = ""
    seconds: float = 0.0


def refusal(command: bytes) -> Run | None:
    """The answer to a command that no shell could be given; None where it can run."""
    if b"\0" in command:
        return Run(126, b"", b"the command holds a NUL character\n")
    if len(command) > MAX_COMMAND_BYTES:
        return Run(126, b"", f"the command holds more than {MAX_COMMAND_BYTES} bytes\n".encode())
    return None
