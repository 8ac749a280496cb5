"""Bad input to every verb: one line on standard error that names the thing and the mend, exit code 2, nothing lost.

Most cases run through the command line in this process; a few are real processes.
"""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callwright.scripts import cli
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import dump_config, load_config
from tests.viewer_runs import make_run

pytestmark = pytest.mark.integration

SMALL = "grpo.prompts_per_step=2 grpo.num_generations=2 eval.n=2 eval.n_slices=0"
FROM = "warm_start.checkpoint=models"
SQLITE = "executors.broker=sqlite executors.queues"
REMOTE = "engine.kind=remote engine.remote"

# The words of a command, and what its line has to name: the thing, then the mend.
CASES: list[tuple[str, tuple[str, ...]]] = [
    # The command line and the config.
    ("nosuch", ("nosuch", "--help")),
    ("train --nosuch", ("--nosuch", "train --help")),
    ("train missing.yaml", ("missing.yaml", "quickstart")),
    ("train quikstart", ("quikstart", "did you mean quickstart?")),
    ("train quickstart grpo.stepz=3", ("grpo.stepz", "did you mean grpo.steps?")),
    ("train quickstart alarm.window=3", ("alarm", "did you mean alarms?")),
    ("train quickstart grpo.steps=-1", ("grpo.steps", "greater than or equal to 0")),
    ("train quickstart grpo.prompts_per_step=0", ("grpo.prompts_per_step", "greater than 0")),
    ("train quickstart seed=-3", ("seed", "greater than or equal to 0")),
    ("train quickstart engine.dtype=int8", ("engine.dtype", "'float32', 'bfloat16' or 'float16'")),
    ("train quickstart grpo", ("grpo", "key=value")),
    ("train quickstart name=../out", ("name", "pattern")),
    ("train files/broken.yaml", ("broken.yaml", "line 2")),
    ("train files/list.yaml", ("list.yaml", "`key: value` lines")),
    ("train files/binary.yaml", ("binary.yaml", "UTF-8")),
    ("train files/twice.yaml", ("seed", "stands twice")),
    ("train files", ("files", "no such file")),
    ("train quickstart alarms.stop=[entropy]", ("alarms.stop", "entropy_low")),
    # What a run needs.
    ("train quickstart --resume name=nothing", ("runs/nothing", "without --resume")),
    ("train quickstart --resume name=whole seed=4", ("runs/whole", "callwright train runs/whole --resume")),
    ("train runs/whole --resume", ("runs/whole/checkpoints/step-1", "config.json")),
    ("train files/no_families.yaml", ("tasks.families", "name at least one")),
    ("train quickstart tasks.families.chess.weight=1", ("chess", "there are lookup")),
    ("train quickstart reward.name=nice", ("nice", "exact")),
    ("train quickstart reward.weights.style=1", ("style", "exact has")),
    ("train quickstart tasks.path=files/nowhere.jsonl", ("tasks.path", "files/nowhere.jsonl")),
    (f"train quickstart tasks.path=files/gsm8k.jsonl {SMALL}", ("tasks.path", "train on families")),
    ("train quickstart grpo.micro_batch=7", ("grpo.micro_batch 7", "divide")),
    ("train quickstart grpo.trl.nosuch=1", ("grpo.trl", "nosuch")),
    ("train quickstart grpo.trl.max_steps=1", ("grpo.trl.max_steps", "own keys")),
    (f"train quickstart warm_start.traces=runs/nowhere 'warm_start.stages=[{{steps: 1}}]' {SMALL}", ("runs/nowhere",)),
    ("train remote model.path=m", ("RemoteEngine", "engine.kind=transformers")),
    ("train quickstart tools=[web,fly]", ("fly", "there are web, code, azure")),
    ("train quickstart executors.web.corpus=files/nowhere.db", ("files/nowhere.db",)),
    (f"train quickstart executors.external=[web] {SQLITE}=files", ("files", "executors.queues")),
    ("train quickstart executors.broker=servicebus", ("CALLWRIGHT_SERVICEBUS", "connection string")),
    # Models and checkpoints.
    ("eval", ("CHECKPOINT", "--help")),
    ("eval runs/whole/checkpoints/step-9", ("runs/whole/checkpoints/step-9", "runs/NAME/checkpoints")),
    ("eval models/no_weights", ("models/no_weights", "safetensors")),
    ("eval models/no_tokenizer", ("models/no_tokenizer", "tokenizer")),
    ("eval models/no_template", ("models/no_template", "chat_template.jinja")),
    ("eval models/no_config", ("models/no_config", "config.json")),
    ("eval models/cut", ("models/cut", "safetensors")),
    ("eval models/junk", ("models/junk", "safetensors")),
    ("eval models/other_shape", ("models/other_shape", "config.json")),
    ("eval tiny", ("tiny", "runs/NAME")),
    (f"train quickstart {FROM}/no_tokenizer {SMALL}", ("models/no_tokenizer", "tokenizer")),
    # Benchmarks.
    ("eval quickstart benchmark=gsm9k", ("gsm9k", "gsm8k")),
    ("eval quickstart benchmark=gsm8k rows=files/nowhere.jsonl", ("files/nowhere.jsonl",)),
    ("eval quickstart benchmark=gsm8k rows=files/empty.jsonl", ("files/empty.jsonl", "no rows")),
    ("eval quickstart benchmark=gsm8k rows=files/schema.jsonl", ("files/schema.jsonl", "answer")),
    ("eval quickstart benchmark=gsm8k rows=files/junk.jsonl", ("files/junk.jsonl", "JSON")),
    ("eval quickstart benchmark=nq rows=files/nq.jsonl", ("nq", "documents=FILE")),
    ("eval quickstart benchmark=nq rows=files/nq.jsonl documents=files/nowhere.jsonl", ("files/nowhere.jsonl",)),
    ("eval quickstart benchmark=gsm8k limit=-2", ("eval.limit", "greater than 0")),
    ("eval quickstart samples=0", ("eval.samples", "greater than 0")),
    ("eval quickstart eval.modes=[fast]", ("eval.modes", "'greedy'")),
    ("eval --check", ("--check", "benchmark=")),
    ("eval --check benchmark=chess", ("chess", "gsm8k")),
    # A vendor's model, chat, serve.
    (f"eval m {REMOTE}.wire=telex", ("engine.remote.wire", "'openai'")),
    (f"eval m {REMOTE}.url=localhost", ("engine.remote.url", "http")),
    (f"eval m {REMOTE}.key_variable=NOT_SET_HERE", ("NOT_SET_HERE", "environment")),
    ("chat", ("CHECKPOINT", "chat --help")),
    ("chat models/nowhere", ("models/nowhere", "checkpoint")),
    ("chat quickstart --events nowhere/events.jsonl", ("nowhere/events.jsonl", "No such file")),
    ("serve quickstart serve.port=99999", ("serve.port", "65535")),
    ("serve quickstart serve.port={port}", ("{port}", "in use")),
    ("serve quickstart serve.host=no.such.host.invalid serve.port=0", ("no.such.host.invalid",)),
    ("serve m engine.kind=remote", ("engine.kind=remote", "serve a checkpoint")),
    # Workers, queues, experiments.
    ("worker", ("TOOL", "worker --help")),
    ("worker fly", ("fly", "web, code, azure")),
    ("worker web quickstart executors.broker=memory", ("executors.broker=memory", "executors.broker=sqlite")),
    (f"worker code {SQLITE}=files", ("files", "executors.queues")),
    (f"worker code {SQLITE}=files/new.db executors.health_port={{port}}", ("{port}", "in use")),
    ("queues quickstart executors.broker=memory", ("executors.broker=memory", "executors.broker=sqlite")),
    ("queues", ("runs/queues.db", "no worker has used it yet", "memory")),
    (f"queues quickstart {SQLITE}=files/nowhere.db", ("files/nowhere.db", "no worker has used it yet")),
    (f"queues quickstart {SQLITE}=files/binary.yaml", ("files/binary.yaml", "not a database")),
    (f"queues quickstart {SQLITE}=files/gsm8k.jsonl --replay chess", ("chess", "rewardqueue")),
    ("queues quickstart --replay rewardqueue --discard rewardqueue", ("--replay", "--discard")),
    ("experiment nosuch", ("nosuch", "rewards")),
    ("experiment files/broken.yaml", ("files/broken.yaml", "line 2")),
    ("experiment files/grid.yaml", ("reward.name=nice", "exact")),
    ("experiment files/rescore.yaml", ("runs/nowhere",)),
    ("experiment files/taken.yaml", ("runs/whole", "name=")),
    # Reading what runs left.
    ("trace runs/nowhere", ("runs/nowhere", "run folder")),
    ("trace runs/junk", ("step-000000.jsonl:1", "JSON")),
    ("trace runs/newer", ("step-000000.jsonl:1", "schema 99")),
    ("trace files/gsm8k.jsonl", ("files/gsm8k.jsonl", "no event store")),
    ("trace runs/whole --step first", ("--step", "integer")),
    ("trace runs/whole --limit 0", ("--limit", "1")),
    ("trace runs/whole --sort size", ("--sort size", "-reward")),
    ("view runs/nowhere", ("runs/nowhere", "run folder")),
    ("view runs/junk --html page.html", ("step-000000.jsonl:1", "JSON")),
    ("view runs/whole --html nowhere/page.html", ("nowhere/page.html", "No such file")),
    ("view runs/whole --html files", ("files", "directory")),
    ("view runs/whole --port {port}", ("{port}", "in use")),
    ("compare runs/whole runs/nowhere", ("runs/nowhere",)),
    ("compare runs/whole runs/other", ("no task in common", "same rows")),
    ("compare runs/whole", ("compare --help",)),
    ("compare runs/whole runs/whole --json nowhere/c.json", ("nowhere/c.json", "No such file")),
    ("doctor missing.yaml", ("missing.yaml", "quickstart")),
    ("doctor quickstart --json nowhere/d.json", ("nowhere/d.json", "No such file")),
    ("train quickstart --json nowhere/t.json", ("nowhere/t.json", "make the folder nowhere")),
    ("train quickstart --json files", ("files", "name a file")),
]
NAMES = ["-".join(words.split()).replace("/", ".")[:70] for words, _ in CASES]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad files, models and runs; every case finds it as it was."""
    world = tmp_path_factory.mktemp("world")
    _files(world / "files")
    _models(world / "models")
    make_run(world / "runs" / "whole", steps=1, per_step=3)
    (world / "runs" / "whole" / "config.yaml").write_text(dump_config(load_config("quickstart", ["name=whole"])))
    make_run(world / "runs" / "other", steps=1, per_step=1)
    for name, line in (("junk", "{"), ("newer", '{"schema": 99}')):
        (world / "runs" / name / "traces").mkdir(parents=True)
        (world / "runs" / name / "traces" / "step-000000.jsonl").write_text(line + "\n")
    other = world / "runs" / "other" / "traces" / "step-000000.jsonl"
    other.write_text(other.read_text().replace("compute/train/0/0", "compute/train/9/9"))
    return world


def _files(folder: Path) -> None:
    folder.mkdir()
    row = {"id": "1", "question": "1+1?", "answer": "2"}
    texts = {
        "broken.yaml": "a: [",
        "list.yaml": "- 1",
        "twice.yaml": "seed: 1\nseed: 2",
        "no_families.yaml": "name: empty",
        "grid.yaml": "name: grid\ngrid: {reward: {nice: {reward.name: nice}}}",
        "rescore.yaml": "name: again\nrescore: runs/nowhere",
        "taken.yaml": "name: whole",
        "gsm8k.jsonl": json.dumps(row),
        "empty.jsonl": "",
        "schema.jsonl": '{"id": "1", "question": "1+1?"}',
        "junk.jsonl": '{"id": "1", "que',
        "nq.jsonl": '{"id": "1", "question": "who?", "answer": "nobody"}',
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n" * bool(text))
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00junk" * 300)


def _models(folder: Path) -> None:
    good = WARM_STARTS / "quickstart"
    without = {
        "no_weights": "model.safetensors",
        "no_config": "config.json",
        "no_tokenizer": "tokenizer*",
        "no_template": "chat_template.jinja",
    }
    for name, pattern in without.items():
        shutil.copytree(good, folder / name)
        for file in (folder / name).glob(pattern):
            file.unlink()
    for name, content in (("cut", (good / "model.safetensors").read_bytes()[:5000]), ("junk", b"junk" * 9)):
        shutil.copytree(good, folder / name)
        (folder / name / "model.safetensors").write_bytes(content)
    shutil.copytree(good, folder / "other_shape")
    config = json.loads((good / "config.json").read_text())
    (folder / "other_shape" / "config.json").write_text(json.dumps({**config, "hidden_size": 64, "head_dim": 16}))


@pytest.fixture(scope="module")
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file; a journal is no more than a place for what comes."""
    files = (path for path in folder.rglob("*") if path.is_file() and "journal.db" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(("words", "says"), CASES, ids=NAMES)
def test_bad_input_is_one_line_and_nothing_is_lost(
    words: str,
    says: tuple[str, ...],
    world: Path,
    taken_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.delenv("CALLWRIGHT_SERVICEBUS", raising=False)
    before = contents(world)
    code = cli.run([word.format(port=taken_port) if "{port}" in word else word for word in shlex.split(words)])
    out, err = capsys.readouterr()
    assert code == 2, err
    assert err.startswith("callwright: ")
    assert err.count("\n") == 1
    assert out == ""
    for part in says:
        assert part.format(port=taken_port) in err
    assert contents(world) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("trace runs/whole --json /dev/full", ("/dev/full", "No space left on device")),
        pytest.param("eval models/cut", ("models/cut", "safetensors"), marks=pytest.mark.slow),
        pytest.param("eval models/other_shape", ("models/other_shape", "config.json"), marks=pytest.mark.slow),
    ],
)
def test_a_process_says_the_same(words: str, says: tuple[str, ...], world: Path) -> None:
    before = contents(world)
    command = [sys.executable, "-m", "callwright", *words.split()]
    done = subprocess.run(command, cwd=world, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("callwright: ")
    assert done.stderr.count("\n") == 1
    for part in says:
        assert part in done.stderr
    assert contents(world) == before
