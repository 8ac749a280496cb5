"""The real sandbox: what a program gets, what it cannot do, and that the pool is healthy afterwards.

Every attack is judged by its effect outside the sandbox or by a later call, not by what the program says of itself,
wherever it can have one.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from services import sandboxes

from callwright.envs.executors.sandbox import BareRunner, Limits, Run, SandboxError, SandboxPool
from callwright.envs.executors.sandbox.bubblewrap import Launcher

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

LIMITS = Limits(wall_s=5, memory_mb=256, processes=16, scratch_mb=8, output_bytes=10_000, flood_bytes=100_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["nested", "disposable"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    async with sandboxes(2, LIMITS, request.param) as made:
        yield made
        assert (await made.run("echo healthy")).stdout == b"healthy\n"


def python(source: str) -> str:
    """The hot path's form where it can be, else the shell's."""
    return f"python3 -c '{source}'" if "'" not in source else shlex.join(["python3", "-c", source])


async def ok(pool: SandboxPool, command: str) -> str:
    run = await pool.run(command)
    assert run.exit_code == 0, run
    return run.stdout.decode()


def host_commands() -> list[str]:
    """The command lines of all processes of this machine that we can see."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


async def vanishes(marker: str) -> None:
    """Waits until no process of this machine has ``marker`` in its command line."""
    async with asyncio.timeout(20):
        while any(marker in command for command in host_commands()):
            await asyncio.sleep(0.02)


# What a program gets


@pytest.mark.parametrize(
    ("command", "exit_code", "stdout"),
    [
        ("echo out; echo err >&2", 0, b"out\n"),
        ("exit 3", 3, b""),
        ("no-such-command", 127, b""),
        ("seq 5 | tail -1 > f; cat f; pwd", 0, b"5\n/scratch\n"),
        ("kill -9 $$", 137, b""),
        (python("print(2**64)"), 0, b"18446744073709551616\n"),
        ("python3 - <<'E'\nprint('here')\nE", 0, b"here\n"),
        ("ls -A; echo $HOME", 0, b"/scratch\n"),
        ("cat", 0, b""),
        ("echo out > /dev/stdout; echo err > /dev/stderr; echo on | tee /proc/self/fd/1", 0, b"out\non\non\n"),
    ],
)
async def test_output_and_exit_codes(pool: SandboxPool, command: str, exit_code: int, stdout: bytes) -> None:
    run = await pool.run(command)
    assert (run.exit_code, run.stdout, run.limit, run.truncated) == (exit_code, stdout, "", False)


FAST = [
    "print(1)",
    "import sys; print(sys.argv, __name__, sys.path[0]); sys.exit(7)",
    'raise SystemExit("words")',
    "raise SystemExit",
    "raise SystemExit(256)",
    "1/0",
    "def f():\n    return g()\nf()",
    "print(1",
    "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError(1) from e",
    "import os; os._exit(5)",
    "import atexit; atexit.register(print, 3); print(4)",
    "class A:\n    def __del__(self): print(5)\na = A()",
    "import threading; threading.Thread(target=print, args=(6,)).start()",
    'print(input("?"))',
    "print(sorted(k for k in globals()))",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os; os.abort()",
    'import sys; sys.stdout.write("no newline")',
    "print(\"é\", '\\x41')".replace("'", '"'),
    'import subprocess; print(subprocess.run(["echo", "7"], capture_output=True).stdout)',
    'f = open("f", "w"); f.write("8")',
    "import random, time; print(time.time() > 0, random.random() < 1)",
    "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x = 1\nprint(pickle.loads(pickle.dumps(P())))",
]


@pytest.mark.parametrize("source", FAST)
async def test_the_fast_path_is_python_c(pool: SandboxPool, source: str) -> None:
    """A trailing `:` is nothing to the shell, but takes the command off the fast path."""
    if pool.mode != "nested":
        pytest.skip("the same code in either mode")
    fast, slow = await pool.run(python(source)), await pool.run(f"python3 -c '{source}'\nexit $?")
    assert fast.exit_code == slow.exit_code
    assert fast.stdout == slow.stdout
    # A shell adds a line of its own on a signal.
    assert fast.stderr == slow.stderr or slow.exit_code > 128


async def test_random_numbers_differ_between_calls(pool: SandboxPool) -> None:
    draw = python("import random; print(random.random())")
    assert len({await ok(pool, draw) for _ in range(4)}) == 4


async def test_many_calls_at_once_keep_their_outputs(pool: SandboxPool) -> None:
    runs = await asyncio.gather(*(pool.run(python(f"print({number})")) for number in range(30)))
    assert [run.stdout for run in runs] == [f"{number}\n".encode() for number in range(30)]


@pytest.mark.parametrize("command", ["echo a\0b", "true " + "x" * 200_000])
async def test_a_command_that_no_shell_could_take_is_an_error(pool: SandboxPool, command: str) -> None:
    run = await pool.run(command)
    assert run.exit_code == 126
    assert run.stderr


# Limits


@pytest.mark.parametrize("daemon", ["", "setsid ", "nohup "])
async def test_a_time_out_kills_the_whole_tree(daemon: str) -> None:
    pool = SandboxPool(1, Limits(wall_s=1))
    await pool.start()
    try:
        marker = f"6{os.getpid()}.{len(daemon)}"  # a number of seconds that no one else sleeps
        run = await pool.run(f"{daemon}sleep {marker} & sleep {marker}")
        assert run.limit == "time limit of 1 s"
        await vanishes(f"sleep {marker}")
        assert (await pool.run(python("while True: pass"))).limit == "time limit of 1 s"
        assert pool.restarts == 0
    finally:
        await pool.close()


async def test_a_daemon_does_not_outlive_its_call(pool: SandboxPool) -> None:
    marker = f"7{os.getpid()}"
    assert await ok(pool, f"setsid nohup sleep {marker} >/dev/null 2>&1 & echo started") == "started\n"
    await vanishes(f"sleep {marker}")


async def test_memory_is_limited(pool: SandboxPool) -> None:
    run = await pool.run(python("x = bytearray(10**9); print(len(x))"))
    assert run.exit_code == 1
    assert b"MemoryError" in run.stderr


async def test_processor_time_is_limited() -> None:
    pool = SandboxPool(1, Limits(wall_s=30, cpu_s=1))
    await pool.start()
    try:
        assert (await pool.run(python("while True: pass"))).exit_code == 152
    finally:
        await pool.close()


async def test_processes_are_limited(pool: SandboxPool) -> None:
    """A small bomb: it stops by itself at 200, far above the limit and harmless without one."""
    bomb = python(
        "import os, time\nn = 0\ntry:\n    while n < 200:\n        if os.fork() == 0:\n            time.sleep(60)\n"
        "            os._exit(0)\n        n += 1\nexcept OSError:\n    pass\nprint(n)"
    )
    assert 0 < int(await ok(pool, bomb)) <= LIMITS.processes + 3
    assert await ok(pool, "echo fine | cat") == "fine\n"


async def test_scratch_is_limited(pool: SandboxPool) -> None:
    run = await pool.run("for i in 1 2 3 4 5; do head -c 4000000 /dev/zero > f$i; done; du -sm . | cut -f1")
    assert int(run.stdout) <= LIMITS.scratch_mb
    run = await pool.run("head -c 100000000 /dev/zero > f")
    assert run.exit_code != 0


async def test_long_output_is_cut_and_a_flood_is_killed(pool: SandboxPool) -> None:
    run = await pool.run("head -c 50000 /dev/zero")
    assert (run.exit_code, len(run.stdout), run.truncated, run.limit) == (0, 10_000, True, "")
    run = await pool.run("yes")
    assert (run.limit, len(run.stdout)) == ("output limit of 100000 bytes", 10_000)
    run = await pool.run(python('import sys\nwhile True: sys.stderr.write("x" * 1000)'))
    assert run.limit == "output limit of 100000 bytes"


# Walls


async def test_no_network(pool: SandboxPool) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        run = await pool.run(
            python(f'import socket; socket.create_connection(("127.0.0.1", {port}), timeout=2); print("in")')
        )
    assert run.stdout == b""
    assert await ok(pool, "tail -n +3 /proc/net/dev | cut -d: -f1") == "    lo\n"


async def test_the_hosts_files_are_out_of_reach(pool: SandboxPool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("planted")
    secret.chmod(0o666)
    for path in (secret, Path("/etc/shadow"), Path("/etc/passwd"), Path.home(), Path(__file__)):
        run = await pool.run(f"cat {path} && ls {path}")
        assert (run.stdout, run.exit_code != 0) == (b"", True), path
    await pool.run(f"echo changed > {secret}; mkdir -p {tmp_path}; touch {tmp_path}/new")
    assert secret.read_text() == "planted"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


async def test_the_hosts_environment_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLWRIGHT_PLANTED", "secret-value")
    pool = SandboxPool(1, LIMITS)
    await pool.start()
    try:
        run = await pool.run("env; cat /proc/*/environ | tr '\\0' '\\n'")
        assert b"secret-value" not in run.stdout
        names = {line.split(b"=")[0] for line in run.stdout.splitlines()}
        assert names <= {b"PATH", b"HOME", b"TMPDIR", b"LANG", b"PWD", b"OLDPWD", b"SHLVL", b"_"}
    finally:
        await pool.close()


async def test_nothing_is_writable_but_scratch(pool: SandboxPool) -> None:
    for folder in ("/", "/usr", "/usr/bin", "/usr/local", "/etc", "/dev", "/sandbox/bin", "/proc"):
        run = await pool.run(f"touch {folder}/planted")
        assert run.exit_code != 0, folder


async def test_a_call_sees_nothing_of_another() -> None:
    pool = SandboxPool(1, LIMITS)
    await pool.start()
    try:
        await ok(pool, "echo planted-text > f; echo x > /dev/shm/g; echo y > /tmp/h; exec 9>f; sleep 60 &")
        assert await ok(pool, "ls -A . /tmp/ /dev/shm; cat /proc/[0-9]*/comm | grep sleep; true") == (
            ".:\n\n/dev/shm:\n\n/tmp/:\n"
        )
        # The command before is not in the memory that this one was forked from, either.
        look = (
            'needle = "planted" + "-text"\nfor line in open("/proc/self/maps"):\n    span, rights = line.split()[:2]\n'
            '    a, b = (int(x, 16) for x in span.split("-"))\n    if rights[0] != "r" or "[v" in line: continue\n'
            '    with open("/proc/self/mem", "rb", 0) as f:\n        f.seek(a)\n        data = f.read(b - a)\n'
            '    print(data.count(("echo " + needle).encode()))'
        )
        assert set((await ok(pool, python(look))).split()) == {"0"}
    finally:
        await pool.close()


async def test_no_rights_are_left(pool: SandboxPool) -> None:
    for command in ("cat /proc/self/status", python('print(open("/proc/self/status").read())')):
        status = dict(re.findall(r"^(\w+):\s*(.*)$", await ok(pool, command), re.MULTILINE))
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"
        assert status["Uid"].split()[0] == "65532"
        assert status["Seccomp"] == "2"
    assert (
        await ok(pool, python('import os; print(sorted(map(int, os.listdir("/proc/self/fd")))[:3])')) == "[0, 1, 2]\n"
    )
    assert await ok(pool, python('import os; print(len(os.listdir("/proc/self/fd")))')) == "4\n"


async def test_the_filter_refuses(pool: SandboxPool) -> None:
    probe = (
        "import ctypes, errno, socket\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(*a):\n"
        '    return errno.errorcode[ctypes.get_errno()] if libc.syscall(*a) < 0 else "did"\n'
        'numbers = {"x86_64": (272, 101, 165, 321, 425, 250), "aarch64": (97, 117, 40, 280, 425, 219)}\n'
        "import os\nprint({call(n, 0x10000000, 0, 0, 0, 0) for n in numbers[os.uname().machine]})\n"
        "for family in (16, 17, 38, 40):\n    try:\n        socket.socket(family, socket.SOCK_RAW)\n"
        '        print("opened", family)\n'
        "    except OSError as error:\n        assert error.errno == errno.EAFNOSUPPORT, error"
    )
    assert await ok(pool, python(probe)) == "{'EPERM'}\n"
    assert (await pool.run("unshare -U true")).exit_code != 0


# Health


async def test_a_killed_zygote_is_replaced_and_the_call_still_answered() -> None:
    pool = SandboxPool(1, LIMITS)
    await pool.start()
    try:
        before = pool.restarts
        running = asyncio.create_task(pool.run("sleep 0.5; echo done"))
        await asyncio.sleep(0.1)
        _process_of(pool).kill()
        assert (await running).stdout == b"done\n"
        assert pool.restarts == before + 1
        _process_of(pool).kill()
        assert await ok(pool, "echo again") == "again\n"
    finally:
        await pool.close()


async def test_a_call_that_brings_down_every_worker_is_charged() -> None:
    pool = SandboxPool(1, LIMITS)
    await pool.start()
    try:
        running = asyncio.create_task(pool.run("sleep 60"))
        for _ in range(2):
            await asyncio.sleep(0.1)
            restarts = pool.restarts
            _process_of(pool).kill()
            async with asyncio.timeout(20):
                while pool.restarts == restarts and not running.done():
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
        run: Run = await running
        assert "brought down" in run.limit
        assert await ok(pool, "echo after") == "after\n"
    finally:
        await pool.close()


async def test_a_cancelled_call_leaves_the_pool_whole(pool: SandboxPool) -> None:
    marker = f"8{os.getpid()}"
    running = asyncio.create_task(pool.run(f"sleep {marker}"))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await vanishes(f"sleep {marker}")
    assert [await ok(pool, "echo 1") for _ in range(3)] == ["1\n"] * 3


async def test_close_leaves_no_process() -> None:
    pool = SandboxPool(2, LIMITS)
    await pool.start()
    pids = [worker._process.pid for slot in pool._slots if (worker := slot.worker)]
    await pool.close()
    await pool.close()
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(SandboxError, match="not started"):
        await pool.run("true")


async def test_without_bubblewrap_it_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        await SandboxPool(1).start()


async def test_a_sandbox_that_does_not_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Launcher(bwrap="/bin/false", python="/usr/bin/python3", prefix=None)
    monkeypatch.setattr(Launcher, "find", classmethod(lambda _: broken))
    with pytest.raises(SandboxError, match=r"could not start.*user namespaces"):
        await SandboxPool(1).start()


async def test_none_runs_unsandboxed_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bare = BareRunner(1, Limits(wall_s=1, flood_bytes=1000))
    await bare.start()
    assert "WITHOUT ISOLATION" in caplog.text
    assert (await bare.run("echo hi; exit 3")).exit_code == 3
    assert (await bare.run("sleep 60")).limit == "time limit of 1 s"
    assert (await bare.run("yes")).limit == "output limit of 1000 bytes"
    assert b"MemoryError" in (await bare.run("python3 -c 'bytearray(10**9)'")).stderr
    await bare.close()


def _process_of(pool: SandboxPool) -> subprocess.Popen[bytes]:
    worker = pool._slots[0].worker
    assert worker is not None
    return worker._process
