"""verifiers runs our tasks as an environment, and its tasks become a family; run in .adapters by test_adapters.py."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import verifiers.v1 as vf
from scripted import gold, scripted, suite

from callwright.envs.adapters.verifiers_env import environment
from callwright.envs.adapters.verifiers_family import family_of
from callwright.envs.tasks import FAMILIES, FamilySpec, build_suite
from callwright.serving.errors import UserError
from callwright.training.experts import solution

family = suite()
tasks = family.evaluation("new_seeds", 2)
scripts = {tasks[0].question: gold(tasks[0]), tasks[1].question: [solution("no idea")]}


class Vendor(BaseHTTPRequestHandler):
    """A chat completions API that recites: what it says next follows from what it has said already."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        question = next(message["content"] for message in asked if message["role"] == "user")
        turn = scripts[question][sum(message["role"] == "assistant" for message in asked)]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": turn}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None: ...


async def play_ours(url: str) -> None:
    os.environ["SCRIPTED_KEY"] = "secret"
    client = vf.EvalClientConfig(base_url=f"{url}/v1", api_key_var="SCRIPTED_KEY")
    context = vf.ModelContext(model="m", client=client)
    with scripted(family) as player:
        env = environment(player, tasks)
        async with env.serving():
            episodes = [await env.run_episode(task, context) for task in env.taskset]
    traces = [trace for episode in episodes for trace in episode.traces]
    assert all(episode.ok for episode in episodes), [trace.errors for trace in traces]
    assert [trace.metrics["success"] for trace in traces] == [1.0, 0.0]
    assert abs(traces[0].reward - 1.1) < 1e-6
    assert abs(traces[1].reward - 0.1) < 1e-6
    assert traces[0].num_turns == len(scripts[tasks[0].question])


class Sum(vf.TaskData):
    answer: str


class SumTask(vf.Task[Sum]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> Iterator[SumTask]:
        for a in range(10, 90):
            yield SumTask(Sum(prompt=f"{a} plus 7?", answer=str(a + 7)), self.config.task)


class Endless(Sums):
    INFINITE = True


async def play_theirs() -> None:
    FAMILIES.add({"sums": family_of(Sums(vf.TasksetConfig()), tools=("web",))})
    (task,) = build_suite({"sums": FamilySpec()}).sample("train", 1)
    assert task.question.endswith("plus 7?")
    with scripted(family, {task.question: [solution(task.answer)]}) as player:
        right = await asyncio.to_thread(player.play, task)
    with scripted(family, {task.question: [solution("1")]}) as player:
        wrong = await asyncio.to_thread(player.play, task)
    assert (right.success, wrong.success) == (True, False)
    with pytest.raises(UserError, match="never ends"):
        family_of(Endless(vf.TasksetConfig()))


server = ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
threading.Thread(target=server.serve_forever, daemon=True).start()
try:
    asyncio.run(play_ours(f"http://127.0.0.1:{server.server_port}"))
    asyncio.run(play_theirs())
finally:
    server.shutdown()
print("verifiers: both ways")
