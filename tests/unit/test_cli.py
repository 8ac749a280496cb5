"""The command line: exit codes, one line for a mistake, quick help without torch, readable traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callwright.envs.traces import TraceWriter, step_name
from callwright.scripts import cli
from callwright.scripts.common import train_extra
from callwright.serving.errors import RunError, UserError

VERBS = sorted(command.name or "" for command in cli.app.registered_commands)


def callwright(*words: str, cwd: Path | None = None, block: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter; ``block`` names libraries that then fail to import."""
    code = f"import sys; sys.modules.update(dict.fromkeys({block!r})); from callwright.scripts.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_loads_no_torch(verb: str) -> None:
    done = callwright(*filter(None, [verb]), "--help", block=("torch", "transformers", "trl", "datasets", "matplotlib"))
    assert done.returncode == 0, done.stderr
    assert f"Usage: callwright {verb}".rstrip() in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "quickstart", "grpo.stepz=3"], "did you mean grpo.steps?"),
        (["train", "grpo.steps=x"], "valid integer"),
        (["train", "missing.yaml"], "no such file"),
        (["train", "quickstart", "grpo.steps"], "key=value"),
        (["train", "--nosuch"], "callwright train --help"),
        (["eval", "no/such/checkpoint"], "no checkpoint"),
        (["eval"], "CHECKPOINT"),
        (["trace", "missing"], "no traces"),
        (["trace", "missing", "--sort", "size"], "-reward"),
        (["trace", "missing", "--outcome", "won"], "policy_fault"),
        (["trace", "missing", "--export", "-"], "name the file"),
        (["trace", sys.executable], "no event store"),
        (["trace", sys.executable, "--step", "3"], "conversations, not rollouts"),
        (["worker"], "callwright worker --help"),
        (["worker", "nosuch"], "no tool nosuch; there are web, code, azure"),
        (["worker", "web", "executors.broker=memory"], "set executors.broker=sqlite"),
        (["queues", "executors.broker=memory"], "set executors.broker=sqlite"),
        (["queues"], "no worker has used it yet"),
        (["view", "missing"], "no traces"),
        (["view", "missing", "--html", "page.html"], "no traces"),
        (["view", "missing", "--port", "70000"], "--port"),
        (["nosuch"], "nosuch"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: list[str], says: str, tmp_path: Path) -> None:
    done = callwright(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("callwright: ")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (RunError("the web executor failed\nsee runs/x"), 1, "callwright: the web executor failed see runs/x\n"),
        (KeyboardInterrupt(), 130, "callwright: interrupted\n"),
    ],
)
def test_a_failed_run_is_one_line(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("callwright.scripts.train.config_from_words", fail)
    assert cli.run(["train"]) == code
    assert capsys.readouterr().err == says


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(UserError, match=r"callwright\[train\]"), train_extra():
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    with pytest.raises(UserError, match=r"callwright\[serve\]"), train_extra("serve"):
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
    with pytest.raises(ModuleNotFoundError), train_extra():
        raise ModuleNotFoundError("No module named 'callwright.nosuch'", name="callwright.nosuch")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "demo"
    for step in range(2):
        with TraceWriter(run / "traces", step_name(step)) as traces:
            for sample in range(3):
                traces.write(
                    {
                        "key": f"lookup/train/0/{step}",
                        "family": "lookup" if step else "compute",
                        "step": step,
                        "sample": sample,
                        "outcome": "policy_fault" if sample == 2 else "scored",
                        "cause": "a call with no q" if sample == 2 else "",
                        "reward": {"parts": {"correct": sample / 2}, "total": sample / 2},
                        "segments": [
                            {"kind": "given", "text": "where is BCD?\nnow", "ids": [1]},
                            {"kind": "sampled", "text": "<web>{}</web>\x1b[2J", "ids": [2]},
                        ],
                        "calls": [{"tool": "web", "arguments": {"q": "BCD"}, "status": "ok", "seconds": 0.1}],
                    }
                )
    return run


def test_trace_tells_sampled_from_given_and_obeys_no_escape(run_folder: Path) -> None:
    done = callwright("trace", str(run_folder), "--limit", "1")
    assert "  given   │ where is BCD?\n  given   │ now\n" in done.stdout
    assert "  sampled │ <web>{}</web>\\x1b[2J\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert "1 of 6 matching rollouts  scored 4  policy_fault 2" in done.stdout


@pytest.mark.parametrize(
    ("flags", "samples"),
    [
        (["--outcome", "policy_fault"], [2, 2]),
        (["--family", "lookup"], [0, 1, 2]),
        (["--task", "/0/1", "--sort", "-reward"], [2, 1, 0]),
        (["--step", "0", "--sort", "reward", "--limit", "2"], [0, 1]),
    ],
)
def test_trace_selects_and_sorts(run_folder: Path, flags: list[str], samples: list[int]) -> None:
    done = callwright("trace", str(run_folder), *flags, "--json", "-")
    assert [rollout["sample"] for rollout in json.loads(done.stdout)["rollouts"]] == samples


def test_trace_finds_a_run_by_name_and_writes_json(run_folder: Path, tmp_path: Path) -> None:
    done = callwright("trace", "demo", "--json", str(tmp_path / "out.json"), cwd=run_folder.parent.parent)
    assert done.returncode == 2  # runs are looked for under runs/, and this parent's name is another
    (tmp_path / "runs").symlink_to(run_folder.parent)
    done = callwright("trace", "demo", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["matched"] == 6


def test_a_reader_that_leaves_early_is_no_error(run_folder: Path) -> None:
    command = f"'{sys.executable}' -m callwright trace '{run_folder}' | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr
