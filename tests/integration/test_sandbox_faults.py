"""Who is charged when a sandbox breaks under a program: the program that broke it, and nobody else.

The programs here attack their own zygote, which they can reach in the disposable mode alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import callwright
from callwright.envs.executors.code import CodeExecutor
from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.sandbox import Limits, SandboxError, SandboxPool
from callwright.envs.executors.sandbox.cgroup import Parents
from callwright.envs.executors.settings import CodeSettings
from callwright.serving.protocol.tools import CODE
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import command_queue
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.reply import CallStatus, Reply, read_reply
from callwright.serving.queues.reward_queue import RewardQueue

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMITS = Limits(wall_s=4, memory_mb=128, processes=16, scratch_mb=8)
ZYGOTE = "$(grep -l '^Name:.python3' /proc/[0-9]*/status | head -n 1 | cut -d/ -f3)"
TOUCH = "b = bytearray(60 << 20); b[::4096] = bytes(len(b) // 4096)"
EATERS = (
    f"import os, sys, time\nfor _ in range(5):\n    if os.fork() == 0:\n        {TOUCH}\n        time.sleep(1)\n"
    "        os._exit(0)\nsys.exit(max(os.wait()[1] for _ in range(5)))"
)


@pytest.fixture
async def executor(request: pytest.FixtureRequest) -> AsyncIterator[CodeExecutor]:
    pool = SandboxPool(1, LIMITS, nested=getattr(request, "param", "nested") == "nested")
    made = CodeExecutor(CodeSettings(), pool)
    try:
        await made.start()
    except ExecutorUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")
    yield made
    await made.close()


disposable = pytest.mark.parametrize("executor", ["disposable"], indirect=True)


async def ask(executor: CodeExecutor, command: str) -> Reply:
    """One call on its way over the queues, as in training."""
    broker = MemoryBroker()
    worker = CommandWorker(broker, executor, CODE, deadline_s=LIMITS.wall_s + 15)
    task = asyncio.create_task(worker.run())
    body = ToolCall(CODE.name, {"code_command": command}).body()
    await broker.send(command_queue(CODE.name), body, message_id="1", lane="a")
    lease = await RewardQueue(broker).read(lane="a", timeout_s=60)
    assert lease is not None
    worker.drain()
    await task
    return read_reply(lease.message.body, CODE.name, 0.0)


async def fine(executor: CodeExecutor) -> bool:
    return (await ask(executor, "true")).status is CallStatus.OK


@disposable
async def test_a_program_that_kills_its_zygote_is_charged(executor: CodeExecutor) -> None:
    reply = await ask(executor, f"kill -9 {ZYGOTE}; sleep 20")
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, "killed: the program brought down two fresh sandboxes")
    assert await fine(executor)


@disposable
async def test_a_program_that_silences_its_zygote_is_charged(executor: CodeExecutor) -> None:
    """Before the deadline that would make it our fault."""
    began = time.monotonic()
    reply = await ask(executor, f"kill -STOP {ZYGOTE}; sleep 1000")
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, "killed: time limit of 4 s")
    assert time.monotonic() - began > LIMITS.wall_s + 5
    assert await fine(executor)


@disposable
async def test_a_program_that_silences_its_zygote_and_kills_it_late_is_charged(executor: CodeExecutor) -> None:
    reply = await ask(executor, f"kill -STOP {ZYGOTE}; sleep 6; kill -9 {ZYGOTE}; sleep 1000")
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, "killed: the program held its sandbox past the time limit")
    assert await fine(executor)


async def test_memory_of_all_processes_together_is_the_programs_fault(executor: CodeExecutor) -> None:
    assert isinstance(executor.runner, SandboxPool)
    if not executor.runner.grouped:
        pytest.skip("no control group can be made here")
    reply = await ask(executor, f"python3 -c '{EATERS}'")
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, "killed: memory limit of 128 MB")
    assert await fine(executor)


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("sleep 20", "killed: time limit of 4 s"),
        ("python3 -c 'bytearray(10**9)'", "memory limit"),
        ("head -c 2000000 /dev/zero", "killed: output limit of 1048576 bytes"),
        ("head -c 20000000 /dev/zero > f", "file size limit"),
    ],
)
async def test_a_limit_is_the_programs_fault(executor: CodeExecutor, command: str, cause: str) -> None:
    reply = await ask(executor, command)
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, cause)


async def test_control_groups_leave_with_their_pool() -> None:
    parents = Parents.find()
    if parents is None:
        pytest.skip("no control group can be made here")

    def groups() -> list[Path]:
        return [p for folder in parents.folders.values() for p in folder.glob(f"callwright-{os.getpid()}-*")]

    stale = [folder / "callwright-999999999-0" for folder in parents.folders.values()]
    for folder in stale:
        folder.mkdir(exist_ok=True)
    pool = SandboxPool(2, LIMITS)
    await pool.start()
    assert len(groups()) == 2 * len(parents.folders)
    await pool.close()
    assert groups() == []
    assert not any(folder.exists() for folder in stale)


async def test_a_wall_that_is_missing_is_named_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a filter that allows everything, programs would still print what they should."""
    allow_all = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
    monkeypatch.setattr("callwright.envs.executors.sandbox.worker.build_filter", lambda: allow_all)
    monkeypatch.setattr("callwright.envs.executors.sandbox.bubblewrap._ROOT_FOLDERS", ("bin", "lib", "lib64", "home"))
    with pytest.raises(SandboxError, match="does not hold: files of the host is"):
        await SandboxPool(1).start()


def test_an_ordinary_user_has_the_same_walls() -> None:
    """The report of a process that never was root; as root, of one that gave it up before it began."""
    drop = 65534 if os.geteuid() == 0 else None
    python = _interpreter_of_everybody() if drop else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if drop:
            _copy_for_everybody(Path(folder))
        ran = subprocess.run(
            [python, "-m", "callwright.envs.executors.sandbox"],
            env={"PYTHONPATH": folder, "PATH": "/usr/bin:/bin"} if drop else None,
            cwd="/",
            user=drop,
            group=drop,
            extra_groups=[] if drop else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if "user namespaces" in ran.stderr or "not installed" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"sandbox: holds; nested, started as uid {drop or os.geteuid()}\n")


def _interpreter_of_everybody() -> str:
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            if subprocess.run([candidate, "-c", "0"], user=65534, capture_output=True, check=False).returncode == 0:
                return candidate
    pytest.skip("there is no Python of this version that an ordinary user may run")


def _copy_for_everybody(folder: Path) -> None:
    """The core of the package and what it imports, where everybody may read it."""
    import pydantic

    shutil.copytree(Path(callwright.__file__).parent, folder / "callwright", ignore=shutil.ignore_patterns("tests"))
    libraries = Path(pydantic.__file__).parents[1]
    for name in ("pydantic", "pydantic_core", "annotated_types", "typing_inspection"):
        shutil.copytree(libraries / name, folder / name)
    shutil.copy(libraries / "typing_extensions.py", folder)
