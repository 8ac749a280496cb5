"""Programs that a model might write to get out, to use up the machine or to stay: none succeeds, and the pool lives on.

Every attack is one row of a table. It is run in the sandbox, where its effect must not show outside, and, where that is
safe, as a plain subprocess, where it must: an attack that fails by itself would prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from attack_world import Attack, World
from attacks_reach import REACH
from attacks_spend import LIMITS, SPENDING
from services import sandboxes

from callwright.envs.executors.sandbox import Run, SandboxPool

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ATTACKS = {attack.name: attack for attack in (*REACH, *SPENDING)}
RunOne = Callable[[str], Awaitable[tuple[int, bytes]]]
POLL_S = 0.03
BARE_S = 30.0  # how long an attack may take to succeed on a loaded machine
TERM_S = 3.0  # how long a plain subprocess may run until it is asked to end, where it has to be
LEAVE_S = 5.0  # how long killed processes may take to leave, and background ones to begin


MODES = ["nested", "disposable"]  # disposable: a bubblewrap a call, the same walls


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODES)
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    async with sandboxes(1, LIMITS, request.param) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


async def test_the_table_is_long_and_its_names_differ() -> None:
    assert len(ATTACKS) == len(REACH) + len(SPENDING) >= 40


@pytest.mark.parametrize("name", ATTACKS)
async def test_in_the_sandbox_it_has_no_effect(name: str, pool: SandboxPool, world: World) -> None:
    attack = ATTACKS[name]
    if attack.nested_only and pool.mode != "nested":
        pytest.skip(attack.nested_only)
    if attack.grouped_only and not pool.grouped:
        pytest.skip(attack.grouped_only)

    async def run(program: str) -> tuple[int, bytes]:
        run: Run = await pool.run(program)
        return run.exit_code, run.stdout + run.stderr

    assert not await _carried_out(attack, world, run)
    assert await _within(LEAVE_S, lambda: not attack.seen(world))
    assert await _healthy(pool)
    assert world.victim.poll() is None


@pytest.mark.parametrize("name", ATTACKS)
async def test_without_the_sandbox_it_has_one(name: str, world: World) -> None:
    attack = ATTACKS[name]
    if attack.bare:
        pytest.skip(attack.bare)
    if attack.root and os.geteuid() != 0:
        pytest.skip("only root succeeds")
    if name == "open by handle" and os.stat(world.folder).st_dev != os.stat("/usr").st_dev:
        pytest.skip("the folder is not on the file system of /usr")
    if name == "TCP over IPv6" and world.tcp6 == 1:
        pytest.skip("no IPv6 here")
    plain = _Plain(world, attack.inside, TERM_S if attack.seen == World.outlives else BARE_S)
    try:
        assert await _carried_out(attack, world, plain.run) or await _within(LEAVE_S, lambda: attack.seen(world))
    finally:
        plain.end()


async def _healthy(pool: SandboxPool) -> bool:
    """It answers a plain program; a busy machine may be late once or twice."""
    for _ in range(3):
        run = await pool.run("echo fine | cat")
        if (run.exit_code, run.stdout, run.limit) == (0, b"fine\n", ""):
            return True
    return False


async def _carried_out(attack: Attack, world: World, run: RunOne) -> bool:
    """Run it, and look from outside all the while. Whether its effect was seen before its end."""
    running = asyncio.ensure_future(run(world.fill(attack.program)))
    try:
        while not running.done():
            world.whisper()
            if attack.seen(world):
                return True
            await asyncio.wait({running}, timeout=POLL_S)
        world.exit_code, world.said = running.result()
        world.returned = True
        if attack.then:
            _, world.then_said = await run(world.fill(attack.then))
        return False
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


class _Plain:
    """The command as a plain subprocess, which is asked to end after a while and then taken for ended."""

    def __init__(self, world: World, inside: str, patience_s: float) -> None:
        self.world = world
        self.inside = inside.split()
        self.patience_s = patience_s

    async def run(self, program: str) -> tuple[int, bytes]:
        with tempfile.TemporaryFile() as said:
            process = await asyncio.create_subprocess_exec(
                *self.inside,
                *("bash", "-c", program),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.world.cwd,
                start_new_session=True,
                pass_fds=[self.world.kept.fileno()],
            )
            try:
                await asyncio.wait_for(process.wait(), self.patience_s)
            except TimeoutError:
                process.terminate()
            finally:
                self.left = process.pid
            said.seek(0)
            return process.returncode or 0, said.read()

    def end(self) -> None:
        """Kill what is left: its process group, and what left that."""
        for pid in (self.left, *self.world.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self.world.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
