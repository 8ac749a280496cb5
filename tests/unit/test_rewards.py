"""Rewards: strict comparison, unit tests that cannot be talked round, and faults of ours that never become a zero."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.envs.rewards import Evidence, GradingFault, gold_check, grade, solves
from callwright.envs.rewards.correct import exact_match, normalise, numeric_match
from callwright.envs.rewards.exact import Exact
from callwright.envs.tasks import Step, Task
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply

pytestmark = pytest.mark.unit

TESTED = Task("k", "unit_tests", "write f.", "lambda x:3*x+17", tests="assert answer(5) == 32\nassert answer(-1) == 14")
EXACT = Task("k", "lookup", "code of KQV?", "481")


def reply(record: bytes, status: CallStatus = CallStatus.OK, cause: str = "") -> Reply:
    return Reply(record, status, cause, seconds=0.0, executor="here")


async def run_code(call: ToolCall) -> Reply:
    """The code executor without its sandbox: these solutions are this file's own."""
    done = await asyncio.to_thread(
        subprocess.run, shlex.split(call.arguments["code_command"]), capture_output=True, text=True, timeout=20
    )
    said = {"type": "code", "status": "ok", "exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    return reply(json.dumps(said).encode())


async def no_call(call: ToolCall) -> Reply:
    raise AssertionError(f"a comparison needs no call: {call}")


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("481", True),
        (" 481\n", True),
        ("+0481", True),
        ("481.", False),
        ("482", False),
        ("481 or 482", False),
        ("4 8 1", False),
        ("٤٨١", False),
    ],
)
def test_exact_match(said: str, right: bool) -> None:
    assert exact_match(said, ("481",)) is right


def test_exact_match_of_words() -> None:
    assert exact_match("Unknown", ("unknown",))
    assert exact_match("2031-05-14", ("2031-05-14",))
    assert not exact_match("unknown or 481", ("unknown", "481"))


@given(st.integers(), st.integers(0, 5))
def test_integers_compare_by_value(value: int, zeros: int) -> None:
    padded = f"-{'0' * zeros}{-value}" if value < 0 else f"{'0' * zeros}{value}"
    assert normalise(padded) == str(value)
    assert exact_match(padded, (str(value),))
    assert not exact_match(str(value + 1), (str(value),))


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("12", True),
        ("12.0", True),
        ("$12", True),
        ("The answer is 12.", True),
        ("12, that is 12", True),
        ("24/2", True),
        ("13 or 12", False),
        ("3*4=12", False),
        ("-12", False),
        ("x12", False),
        ("12/0", False),
        ("none", False),
        ("9" * 5000, False),
    ],
)
def test_numeric_match(said: str, right: bool) -> None:
    assert numeric_match(said, ("12",)) is right


async def test_parts_and_weights() -> None:
    reward = await grade(Evidence(EXACT, "481"), no_call)
    assert (reward.success, reward.total, dict(reward.parts)) == (True, 1.1, {"correct": 1.0, "clean": 0.1})
    assert (await grade(Evidence(EXACT, "481", rejections=1), no_call)).total == 1.0
    assert (await grade(Evidence(EXACT, "7"), no_call)).total == 0.1
    assert (await grade(Evidence(EXACT, "481"), no_call, function=Exact(correct=2, clean=0))).total == 2.0
    for unfinished in (None, "", "  \n"):
        assert (await grade(Evidence(EXACT, unfinished), no_call)).total == 0


@pytest.mark.parametrize(
    "solution",
    [
        "lambda x:3*x+17",
        " lambda x: 3*x + 17\n",
        "def f(x):\n    return 3 * x + 17",
        "import math\ndef helper(x):\n    return x * 3\ndef answer(x):\n    print('noise')\n    return helper(x) + 17",
    ],
)
async def test_right_solutions_pass(solution: str) -> None:
    assert await solves(TESTED, solution, run_code)


@pytest.mark.parametrize(
    "solution",
    [
        "lambda x:17*x+3",
        "x ===",
        "5",
        "print('ok')",
        "exit(0)",
        "import os\nos._exit(0)",
        "def answer(x):\n    raise SystemExit(0)",
        "class E:\n    def __eq__(self, other):\n        return True\nanswer = lambda x: E()",
        "class E(int):\n    __eq__ = lambda self, other: True\n    __repr__ = lambda self: 'E'\nanswer = lambda x: E()",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        # Everything secret is in the parent's command line, and no descriptor is left to read it with.
        "import re\ndef answer(x):\n    return int(re.search(rf'answer.{x}. == (-?.d+)', "
        "open('/proc/%d/cmdline' % __import__('os').getppid()).read())[1])",
        "import builtins\nbuiltins.print = lambda *a: None\nanswer = lambda x: 1",
        "'" + chr(0) + "\ud800'",
    ],
)
async def test_wrong_and_forging_solutions_fail(solution: str) -> None:
    assert not await solves(TESTED, solution, run_code)


async def test_a_reading_of_the_parents_command_line_is_what_fails() -> None:
    curious = "def answer(x):\n    open('/proc/self/cmdline')\n    return 3 * x + 17"
    assert not await solves(TESTED, curious, run_code)
    caught = (
        "def answer(x):\n    try:\n        open('/proc/self/cmdline')\n    except OSError:\n        return 3 * x + 17"
    )
    assert await solves(TESTED, caught, run_code)


async def test_an_overlong_solution_fails_unrun() -> None:
    assert not await solves(TESTED, "lambda x:3*x+17" + " " * 20_000, no_call)


@pytest.mark.parametrize("stdout", ["ok\n", "", "pass\n", "0" * 32 + "\n"])
async def test_only_the_token_passes(stdout: str) -> None:
    record = json.dumps({"type": "code", "status": "ok", "exit_code": 0, "stdout": stdout, "stderr": ""}).encode()

    async def forged(call: ToolCall) -> Reply:
        return reply(record)

    assert not await solves(TESTED, TESTED.answer, forged)


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"", CallStatus.INFRA_FAULT, "worker lost"),
        reply(b"", CallStatus.REJECTED, "too large"),
        reply(b"not json"),
        reply(b"[]"),
        reply(b'{"type":"web","status":"ok","results":[]}'),
    ],
)
async def test_a_fault_of_ours_is_no_reward(answer: Reply) -> None:
    async def faulty(call: ToolCall) -> Reply:
        return answer

    with pytest.raises(GradingFault):
        await solves(TESTED, TESTED.answer, faulty)


@pytest.mark.parametrize("status", [CallStatus.LIMIT, CallStatus.ERROR])
async def test_a_limit_is_the_solutions_own(status: CallStatus) -> None:
    async def limited(call: ToolCall) -> Reply:
        return reply(json.dumps({"type": "code", "status": status, "exit_code": None}).encode(), status)

    assert not await solves(TESTED, "while True: pass", limited)


async def test_gold_check_says_what_is_wrong() -> None:
    async def found(call: ToolCall) -> Reply:
        return reply(b'{"type":"web","status":"ok","results":[{"title":"KQV","text":"KQV code 481."}]}')

    plan = (Step("web", {"q": "KQV", "k": 1}),)
    sound = Task("a", "lookup", "code of KQV?", "481", plan, guesses=("12",))
    assert await gold_check([sound], found) == []
    bad = [
        Task("leak", "lookup", "code 481 of KQV?", "481", plan),
        Task("missing", "lookup", "code of KQV?", "48", plan),
        Task("guess", "lookup", "code of KQV?", "481", plan, guesses=("0481",)),
    ]
    assert [failure.key for failure in await gold_check(bad, found)] == ["leak", "missing", "guess"]
