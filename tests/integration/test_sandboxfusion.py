"""The remote back end against a local server of SandboxFusion's shape: results, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from callwright.envs.executors import sandboxfusion
from callwright.envs.executors.code import CodeExecutor
from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.sandbox import Limits
from callwright.envs.executors.sandboxfusion import SandboxFusion
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import CodeSettings, ExecutorSettings
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply
from callwright.training.config import ConfigError, load_config

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMITS = Limits(wall_s=3, memory_mb=256, output_bytes=1000, flood_bytes=5000)
Request = dict[str, Any]


def executor_of(url: str) -> CodeExecutor:
    return CodeExecutor(CodeSettings(backend="sandboxfusion", url=url), SandboxFusion(url, 2, LIMITS))


class Server:
    """Runs what it is sent as the real one does; ``fail`` answers in its place where it returns True."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fail: Callable[[BaseHTTPRequestHandler, Request], bool] = lambda _, __: False
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append({"path": self.path, **request})
                if not outer.fail(self, request):
                    say(self, ran(request))

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(10)


def ran(request: Request) -> Request:
    """What the real server answers, by running it with bash."""
    answer = {"status": "Success", "message": "", "compile_result": None, "executor_pod_name": None, "files": {}}
    try:
        done = subprocess.run(
            ["bash", "-c", request["code"]], capture_output=True, text=True, timeout=request["run_timeout"], check=False
        )
    except subprocess.TimeoutExpired:
        said: Request = {"status": "TimeLimitExceeded", "execution_time": 1.0, "return_code": None}
        return {**answer, "status": "Failed", "run_result": {**said, "stdout": "", "stderr": ""}}
    result = {"status": "Finished", "execution_time": 0.1, "return_code": done.returncode}
    status = "Failed" if done.returncode else "Success"
    return {**answer, "status": status, "run_result": {**result, "stdout": done.stdout, "stderr": done.stderr}}


def say(handler: BaseHTTPRequestHandler, answer: Request | bytes, status: int = 200) -> None:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
async def executors(server: Server) -> AsyncIterator[Executors]:
    """The whole way: dispatcher, queue, worker, executor, HTTP."""
    async with Executors(ExecutorSettings(tools=("code",)), executors={"code": executor_of(server.url)}) as made:
        yield made


async def ask(executors: Executors, command: str) -> Reply:
    return await executors.call(ToolCall("code", {"code_command": command}))


async def test_the_request_has_the_servers_shape(server: Server, executors: Executors) -> None:
    await ask(executors, "true")
    assert server.requests[-1] == {
        "path": "/run_code",
        "code": "true",
        "language": "bash",
        "run_timeout": 3.0,
        "memory_limit_MB": 256,
        "files": {},
    }


@pytest.mark.parametrize(
    ("command", "record"),
    [
        ("echo out; echo err >&2", {"status": "ok", "exit_code": 0, "stdout": "out\n", "stderr": "err\n"}),
        ("exit 3", {"status": "error", "exit_code": 3, "stdout": ""}),
        ("kill -9 $$", {"status": "error", "exit_code": 137, "stdout": ""}),
        ("echo é", {"status": "ok", "exit_code": 0, "stdout": "é\n"}),
        ("printf %2000d 0", {"status": "ok", "exit_code": 0, "stdout": " " * 1000, "truncated": True}),
    ],
)
async def test_results_are_those_of_the_local_sandbox(executors: Executors, command: str, record: Request) -> None:
    assert json.loads((await ask(executors, command)).record) == {"type": "code", **record}


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("sleep 30", "killed: time limit of 3 s"),
        ("printf %6000d 0", "killed: output limit of 5000 bytes"),
        ("printf 'MemoryError\\n' >&2; exit 1", "memory limit"),
    ],
)
async def test_a_limit_is_the_programs_fault(executors: Executors, command: str, cause: str) -> None:
    reply = await ask(executors, command)
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, cause)


async def test_an_answer_too_long_to_read_is_the_programs_fault(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxfusion, "MAX_ANSWER_BYTES", 50_000)
    reply = await ask(executors, "head -c 100000 /dev/zero | tr '\\0' x")
    assert (reply.status, reply.cause) == (CallStatus.LIMIT, "killed: output limit of 5000 bytes")


def drip(server: Server, handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever: no single read ever waits long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while not server.released.wait(0.1):
        try:
            handler.wfile.write(b" ")
        except OSError:
            return


def drip_head(server: Server, handler: BaseHTTPRequestHandler) -> None:
    while not server.released.wait(0.1):
        try:
            handler.wfile.write(b"H")
        except OSError:
            return


FAILURES: dict[str, tuple[Callable[[Server, BaseHTTPRequestHandler], object], str]] = {
    "500": (
        lambda _, h: say(h, b"worker\nlost", 500),
        "the sandbox server answered 500 Internal Server Error: worker lost",
    ),
    "503": (lambda _, h: say(h, b"", 503), "answered 503"),
    "422": (lambda _, h: say(h, {"detail": "no language"}, 422), "answered 422"),
    "redirect": (lambda _, h: say(h, b"", 302), "answered 302"),
    "no JSON": (lambda _, h: say(h, b"<html>busy</html>"), "answered out of shape"),
    "a list": (lambda _, h: say(h, b"[]"), "answered out of shape"),
    "another shape": (lambda _, h: say(h, {"status": "Great"}), "answered out of shape"),
    "no return code": (
        lambda _, h: say(h, {"status": "Success", "run_result": {"status": "Finished"}}),
        "a finished run has no return code",
    ),
    "no HTTP": (lambda _, h: h.wfile.write(b"hello\r\n\r\n"), "BadStatusLine"),
    "hangs up": (lambda _, h: h.connection.shutdown(socket.SHUT_RDWR), "RemoteDisconnected"),
    "hangs up in the middle": (
        lambda _, h: h.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"),
        "answered out of shape",
    ),
    "silent": (lambda s, _: s.released.wait(60), "gave no answer within 4 s"),
    "slow": (drip, "gave no answer within 4 s"),
    "slow from the start": (drip_head, "gave no answer within 4 s"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failing_server_is_an_infra_fault_by_the_deadline(
    name: str, server: Server, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, cause = FAILURES[name]

    def fail(handler: BaseHTTPRequestHandler, _: Request) -> bool:
        answer(server, handler)
        return True

    server.fail = fail
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(sandboxfusion, "GRACE_S", 1.0)
        reply = await ask(executors, "true")
    assert time.monotonic() - began < 20  # the deadline is 4 s; the machine may be slow, the server would take for ever
    assert reply.status is CallStatus.INFRA_FAULT
    assert cause in reply.cause
    assert "code/sandboxfusion" in reply.cause
    server.fail = lambda _, __: False
    assert (await ask(executors, "true")).status is CallStatus.OK


async def test_slow_answers_leave_no_thread_behind(
    server: Server, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads: each gives its place back."""

    def fail(handler: BaseHTTPRequestHandler, request: Request) -> bool:
        if request["code"] == "slow":
            drip(server, handler)
        return bool(request["code"] == "slow")

    server.fail = fail
    with monkeypatch.context() as patch:
        patch.setattr(sandboxfusion, "GRACE_S", 1.0)
        replies = await asyncio.gather(*(ask(executors, "slow") for _ in range(4)))
    assert {reply.status for reply in replies} == {CallStatus.INFRA_FAULT}
    assert (await ask(executors, "true")).status is CallStatus.OK


def broken(only: str) -> Callable[[BaseHTTPRequestHandler, Request], bool]:
    """The server says of the programs that hold ``only`` that its own sandbox failed."""

    def fail(handler: BaseHTTPRequestHandler, request: Request) -> bool:
        if only in request["code"]:
            say(handler, {"status": "SandboxError", "message": "cannot decode\nits output", "run_result": None})
        return only in request["code"]

    return fail


async def test_a_fault_that_one_program_alone_has_is_its_own(server: Server, executors: Executors) -> None:
    server.fail = broken("poison")
    reply = await ask(executors, "poison")
    assert reply.status is CallStatus.LIMIT
    assert "the program failed its sandbox twice" in reply.cause
    assert "cannot decode" in reply.cause
    assert [request["code"] for request in server.requests[-3:]] == ["poison", "poison", "true"]


async def test_a_fault_that_every_program_has_is_ours(server: Server, executors: Executors) -> None:
    server.fail = broken("")
    reply = await ask(executors, "anything")
    assert reply.status is CallStatus.INFRA_FAULT
    assert "could not run it: cannot decode" in reply.cause


async def test_a_server_that_is_not_there_is_told_at_start(server: Server) -> None:
    url = server.url
    server.close()
    executor = executor_of(url)
    with pytest.raises(ExecutorUnavailable, match=rf"^{url}/run_code: ConnectionRefusedError"):
        await executor.start()
    await executor.close()


async def test_a_server_that_runs_nothing_is_told_at_start(server: Server) -> None:
    server.fail = lambda handler, _: (
        say(handler, {"status": "Success", "run_result": {"status": "Finished", "return_code": 0}}) or True
    )
    executor = executor_of(server.url + "/")
    with pytest.raises(ExecutorUnavailable, match="does not run a plain program"):
        await executor.start()
    await executor.close()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["executors.code.backend=sandboxfusion"], "needs the http address of its server in url, not None"),
        (["executors.code.backend=sandboxfusion", "executors.code.url=box:80"], "needs the http address"),
        (["executors.code.url=http://box"], "the backend is local"),
        (["executors.code.backend=docker"], "executors.code.backend"),
    ],
)
def test_a_config_that_cannot_be_meant_is_one_line(words: list[str], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as caught:
        load_config("quickstart", words)
    assert "\n" not in str(caught.value)
