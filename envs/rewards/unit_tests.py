"""Unit tests run by the code executor; the verdict is read from the reward-queue record alone.

Invariants: submitted code runs in the sandbox, in a child process that can open nothing (no file, no ``/proc``, no
socket) and reaches only a pipe to the test process. It never sees the tests, the expected values or the pass token, and
what crosses the pipe is compared as plain literals, so that neither ``exit(0)``, printing, patched built-ins nor an
object equal to everything passes. The test process prints the token, fresh for every call, only after the last test.
"""

from __future__ import annotations

import json
import secrets
import shlex
from dataclasses import dataclass

from callwright.envs.rewards.reward import GradingFault
from callwright.serving.protocol.tools import CODE
from callwright.serving.protocol.values import ToolCall

# Longer solutions fail unrun: the command line they travel in has a limit, and a refused call would count as our fault.
LONGEST_SOLUTION = 16_000

# Modules are imported before the process loses the right to open files: a solution can use these and no others.
_CHILD = """
import ast, bisect, collections, copy, datetime, decimal, fractions, functools, heapq, itertools, json, math, operator
import hashlib, random, re, resource, statistics, string, sys, typing
reply, sys.stdout = sys.stdout, sys.stderr
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
function = None
def plain(value):
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        kind = next(kind for kind in (list, tuple, set) if isinstance(value, kind))
        return kind(map(plain, value))
    return value
def load(source, entry):
    global function
    space = {}
    try:
        function = eval(compile(source.strip(), "solution", "eval"), space)
    except SyntaxError:
        exec(compile(source, "solution", "exec"), space)
        if entry:
            function = space[entry]
            return
        defined = [value for name, value in space.items() if name != "__builtins__" and callable(value)]
        function = space.get("answer", defined[-1] if defined else None)
def run(args, kwargs):
    return plain(function(*args, **kwargs))
for line in sys.stdin:
    name, args, kwargs = ast.literal_eval(line)
    try:
        said = repr((True, load(*args) if name == "load" else run(args, kwargs)))
    except Exception as error:
        said = repr((False, type(error).__name__))
    reply.write(said + "\\n")
    reply.flush()
"""

_PARENT = """
import ast, json, subprocess, sys
job = json.loads(sys.argv[1])
pipe = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", job["child"]], **pipe)
def ask(name, args, kwargs):
    child.stdin.write(repr((name, args, kwargs)) + "\\n")
    child.stdin.flush()
    fine, value = ast.literal_eval(child.stdout.readline())
    if not fine:
        raise RuntimeError(value)
    return value
try:
    ask("load", (job["solution"], job["entry"]), {})
    exec(job["tests"], {"answer": lambda *args, **kwargs: ask("run", args, kwargs)})
    print(job["token"])
except BaseException as error:
    print("failed:", type(error).__name__)
child.kill()
"""


@dataclass(frozen=True, slots=True)
class GradingRun:
    """The call that runs the tests, and the token that only a pass prints."""

    call: ToolCall
    token: str

    def passed(self, record: bytes) -> bool:
        """Reads the verdict. A record that is no code record is our fault and raises ``GradingFault``."""
        try:
            said = json.loads(record)
        except ValueError as error:
            raise GradingFault("the code executor's record is not JSON") from error
        if not isinstance(said, dict) or said.get("type") != CODE.name:
            raise GradingFault("the record of the unit tests is not from the code executor")
        ran = said.get("status") == "ok" and said.get("exit_code") == 0
        return ran and said.get("stdout") == f"{self.token}\n"


def grading_run(solution: str, tests: str, entry: str = "") -> GradingRun:
    """The run that grades ``solution``: statements that define the function ``entry``; or where that is empty, an
    expression, or statements that define ``answer`` or a last callable."""
    token = secrets.token_hex(16)
    job = json.dumps({"child": _CHILD, "token": token, "solution": solution, "tests": tests, "entry": entry})
    command = shlex.join(["python3", "-I", "-S", "-c", _PARENT, job])
    return GradingRun(ToolCall(CODE.name, {"code_command": command}), token)
