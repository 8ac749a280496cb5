"""A vendor's model from the commands: evaluated as a local one is, asked for traces that a small model then learns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gateways import Reciter, gateway

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.tasks.task import Step
from callwright.envs.traces import Trace, read_traces
from callwright.envs.trajectory import Sampled
from callwright.scripts import cli
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded, load
from callwright.serving.protocol import DEFAULT_TOOLS
from callwright.training.chat import chat
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import load_config
from callwright.training.experts import ScriptedEngine, call, solution
from callwright.training.retold import retold
from callwright.training.session import open_session
from callwright.training.warm_start import warm_start

pytestmark = pytest.mark.integration

KEY = "pl4nted-s3cret"
VARIABLE = "SOME_VENDORS_KEY"
FEW = ("eval.modes=[greedy]", "eval.n=8", "eval.n_slices=0")
BUDGETS = Budgets(turn_tokens=200, policy_tokens=900, context=2000, calls=6)


@pytest.fixture(scope="module")
def shipped() -> Loaded:
    return load(str(WARM_STARTS / "quickstart"), device="cpu")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go to a folder of the test's own, and the key is in the environment alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, KEY)
    return tmp_path


def remote(url: str, wire: str = "openai") -> list[str]:
    return [
        *("some-model", "engine.kind=remote", f"engine.remote.url={url}", f"engine.remote.wire={wire}"),
        f"engine.remote.key_variable={VARIABLE}",
    ]


def traces(name: str) -> dict[str, Trace]:
    return {trace["key"]: trace for trace in read_traces(Path("runs") / f"{name}-eval")}


def sampled(trace: Trace) -> list[str]:
    return [segment["text"] for segment in trace["segments"] if segment["kind"] == "sampled"]


def test_a_served_checkpoint_says_what_it_says_here(
    shipped: Loaded, elsewhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", "quickstart", "name=here", *FEW]) == 0
    here = traces("here")
    # The server's own dialect is another, so that what the model writes is plain text to it.
    engine = TransformersEngine(shipped.model, rows=8, context=1024)
    with gateway(engine, shipped.codec, "hermes", explain=False, key=KEY) as url:
        for wire in ("openai", "anthropic"):
            words = [f"name={wire}", "system_prompt=none", "budgets.turn_tokens=300", *FEW]
            assert cli.run(["eval", *remote(url, wire), *words]) == 0
            there = traces(wire)
            assert there.keys() == here.keys()
            for key, trace in there.items():
                assert sampled(trace)[0] == sampled(here[key])[0]
                # After a call it reads the result as this server's dialect frames it, so only the rest is the same.
                if not here[key]["calls"]:
                    assert sampled(trace) == sampled(here[key])
                    assert (trace["outcome"], trace["success"]) == (here[key]["outcome"], here[key]["success"])
                assert all(set(segment) == {"kind", "text"} for segment in trace["segments"])
    assert sum(not trace["calls"] for trace in here.values()) >= len(here) // 2
    assert any(trace["success"] for trace in here.values())
    engine.close()
    told = capfd.readouterr()
    files = [file for file in elsewhere.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in told.out + told.err


def test_a_vendor_that_refuses_ends_the_run_in_one_line_without_the_key(
    tiny: Loaded, elsewhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with gateway(Reciter(tiny.codec, lambda context: ""), tiny.codec, key="another") as url:
        assert cli.run(["eval", *remote(url), *FEW]) == 1
    told = capfd.readouterr().err
    assert "8 of 8 rollouts failed through no fault of the policy" in told.splitlines()[-1]
    assert "some-model: 401" in told
    assert KEY not in told
    assert not [file for file in elsewhere.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]


def test_a_vendors_model_runs_a_benchmark(shipped: Loaded) -> None:
    rows = ["benchmark=direct", "limit=4"]
    assert cli.run(["eval", "quickstart", *rows, "--json", "here.json"]) == 0
    engine = TransformersEngine(shipped.model, rows=8, context=1024)
    with gateway(engine, shipped.codec, "hermes", explain=False, key=KEY) as url:
        words = [*rows, "system_prompt=none", "budgets.turn_tokens=300", "--json", "there.json"]
        assert cli.run(["eval", *remote(url), *words]) == 0
    engine.close()
    here, there = (json.loads(Path(name).read_text()) for name in ("here.json", "there.json"))
    assert (there["success"], there["n_scored"]) == (here["success"], 4)
    assert there["success"] > 0
    assert there["tokens_per_rollout"] is None
    assert there["closed_book"] is None


def test_a_vendors_model_can_be_chatted_with(shipped: Loaded) -> None:
    web = call(Step("web", {"q": "nobody", "k": 1}))
    forbidden = call(Step("azure", {"azure_command": "az vm list"}))  # no tool of this config
    teacher = solver({"who is there?": [forbidden, web, solution("nobody")]}, shipped.codec)
    out = io.StringIO()
    with gateway(teacher, shipped.codec, "hermes", explain=False, key=KEY) as url:
        changes = [f"model.path={remote(url)[0]}", *remote(url)[1:]]
        chat(load_config("remote", changes), ["who is there?\n"], out)
    lines = [line.partition(": ") for line in out.getvalue().splitlines()]
    told = [(kind, text) for kind, _, text in lines if kind in ("call", "result", "respond")]
    assert [kind for kind, _ in told] == ["result", "call", "result", "respond"]
    assert '[{"tool":"azure","status":"failure"' in told[0][1]
    assert "unknown_tool" in told[0][1]
    assert '"results":[]' in told[2][1]
    assert told[3][1] == "nobody"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "quickstart", "engine.kind=remote"], "a policy gradient needs both"),
        (["train", "remote"], "a policy gradient needs both"),
        (["train", "quickstart", "decoding=grammar", "engine.kind=vllm"], "engine.kind=transformers alone"),
        (["train", "quickstart", "decoding=grammar", "grpo.trl.beta=0.1"], "grpo.trl.beta"),
        (["eval", "m", "engine.kind=remote", "decoding=grammar"], "say decoding=free"),
        (["serve", "m", "engine.kind=remote"], "serve a checkpoint"),
        (["eval", "m", "engine.kind=remote", "engine.remote.key_variable=NO_SUCH_KEY"], "no such variable"),
        (["eval", "m", "engine.kind=remote", "engine.remote.url=localhost:8000"], "engine.remote.url"),
        (["eval", "m", "engine.kind=remote", "engine.remote.wire=hermes"], "engine.remote.wire"),
        (["eval", "m", "engine.kind=remote", "eval.modes=[closed_book]"], "eval.modes=[greedy,sampled]"),
        (["eval", "m", "engine.kind=remote", "benchmark=direct", "eval.modes=[closed_book]"], "closed_book begins"),
        (["eval", "m", "engine.kind=transformers"], "no checkpoint m"),
        (["train", "quickstart", "warm_start.traces=runs/x"], "warm_start.stages"),
    ],
)
def test_what_it_cannot_do_is_one_line_and_exit_2(
    words: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert says in told


def solver(turns: dict[str, list[str]], codec: Any) -> Reciter:
    """A teacher that knows each question's turns, and which comes next by the results that it has been told."""

    def answer(context: str) -> str:
        question = next(question for question in turns if question in context)
        return turns[question][context.partition(question)[2].count("<tool_result>")]

    return Reciter(codec, answer)


@pytest.fixture
def collected(shipped: Loaded) -> Callable[..., dict[str, Trace]]:
    """Collect a teacher's traces on tasks of training, through the command and a socket."""

    def collect(n: int, spoil: int = 0) -> dict[str, Trace]:
        config = load_config("remote")
        with open_session(config) as session:
            tasks = session.tasks.sample("train", n, "eval", 0)
        turns = {task.question: [*(call(step) for step in task.plan), solution(task.answer)] for task in tasks}
        for task in tasks[:spoil]:
            turns[task.question] = [solution("nothing of the kind")]
        teacher = solver(turns, shipped.codec)
        with gateway(teacher, shipped.codec, "hermes", explain=False, key=KEY) as url:
            few = ["eval.split=train", f"eval.n={n}", "eval.modes=[greedy]"]
            assert cli.run(["eval", *remote(url), *few]) == 0
        return traces("remote")

    return collect


async def test_traces_are_told_again_in_the_learners_own_tokens(
    shipped: Loaded, collected: Callable[..., dict[str, Trace]]
) -> None:
    found = collected(8, spoil=1)
    assert {trace["slice"] for trace in found.values()} == {"train"}
    policy = Policy(ScriptedEngine(shipped.codec, []), shipped.codec, DEFAULT_TOOLS[:2], system_prompt=False)
    told, left_out = await retold(found.values(), policy, BUDGETS, limit=100)
    assert (len(told), left_out) == (7, {"no success": 1})
    for rollout in told:
        trace = found[rollout.task.key]
        parts = [part for part in rollout.trajectory.segments if isinstance(part, Sampled)]
        assert [shipped.codec.decode(part.ids) for part in parts] == sampled(trace)
        assert [shipped.codec.markers(text) for text in sampled(trace)] == [list(part.ids) for part in parts]
        assert [record.record for record in rollout.calls] == [record["record"] for record in trace["calls"]]
        given = shipped.codec.decode(rollout.trajectory.ids)
        assert given.startswith(f"<|user|>{rollout.task.question}<|assistant|>")
        assert given.count("<tool_result>") == len(trace["calls"])
    assert sum(len(rollout.calls) for rollout in told) > 7
    assert len((await retold(found.values(), policy, BUDGETS, limit=2))[0]) == 2


async def test_only_clean_successes_of_training_that_end_as_they_did_are_told(
    shipped: Loaded, collected: Callable[..., dict[str, Trace]]
) -> None:
    trace = next(trace for trace in collected(8).values() if len(trace["calls"]) > 1)
    policy = Policy(ScriptedEngine(shipped.codec, []), shipped.codec, DEFAULT_TOOLS[:2], system_prompt=False)

    async def why(policy: Policy = policy, budgets: Budgets = BUDGETS, **changes: Any) -> list[str]:
        told, left_out = await retold([{**trace, **changes}], policy, budgets, limit=1)
        assert len(told) + left_out.total() == 1
        return list(left_out)

    other = ["in this dialect, tokenizer or budget it does not end as it did"]
    texts = [{"kind": "sampled", "text": text.replace("</", "<|user|></")} for text in sampled(trace)]
    assert await why() == []
    assert await why(slice="new_seeds") == ["not a task of training"]
    assert await why(slice=None) == ["not a task of training"]
    assert await why(success=False) == ["no success"]
    assert await why(violations=1) == ["a breach of the protocol"]
    assert await why(rejections=[{"code": "missing_key"}]) == ["a breach of the protocol"]
    assert await why(calls=trace["calls"][:1]) == other
    assert await why(calls=[*trace["calls"], trace["calls"][0]]) == other
    assert await why(segments=texts) == other
    assert await why(policy=Policy(policy.engine, policy.codec, policy.tools, "execute")) == other
    assert await why(budgets=BUDGETS.model_copy(update={"policy_tokens": 5})) == other


@pytest.mark.slow
def test_a_small_model_learns_from_a_vendors_traces(
    collected: Callable[..., dict[str, Trace]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    collected(6)
    words = ["warm_start.checkpoint=null", "warm_start.traces=runs/remote-eval", "warm_start.batch=4"]
    words.append("warm_start.trl.logging_steps=1")
    stages = "warm_start.stages=[{steps: 8, traces: 6, lr: 0.003}]"
    with open_session(load_config("quickstart", [*words, stages, "engine.device=cpu"])) as session:
        warm_start(session, tmp_path / "run")
    told = capfd.readouterr().err
    assert "6 traces told again, then 8 steps" in told
    first, last = told.rpartition("loss ")[2].split(" -> ")
    assert float(last) < float(first)
    # Evaluation's own tasks are no traces to learn from.
    assert cli.run(["eval", "quickstart", "name=held", *FEW]) == 0
    nothing = ["warm_start.traces=runs/held-eval", stages]
    assert cli.run(["train", "quickstart", "name=learner", *nothing]) == 2
    assert "nothing to learn from (8 left out: not a task of training)" in capfd.readouterr().err
