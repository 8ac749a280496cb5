"""The doctor on real parts, whole and broken: each failure is one named line with its reason and the mend."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from callwright.scripts import cli
from callwright.training.config import load_config
from callwright.training.doctor.check import Check, Finding, Status, Verdict, examine
from callwright.training.doctor.run import checks_of

pytestmark = pytest.mark.integration

NAMES = (
    *("versions", "device", "tasks", "sandbox", "broker", "call web", "call code"),
    *("model", "generation", "weight sync", "evaluation"),
)


def examined(wanted: str, *overrides: str, config: str = "quickstart") -> Finding:
    """The finding of one check, after those that it needs."""
    checks = {check.name: check for check in checks_of(load_config(config, overrides))}

    def needed(name: str) -> list[Check]:
        return [*(other for need in checks[name].needs for other in needed(need)), checks[name]]

    return list(examine(needed(wanted)))[-1]


def failure(wanted: str, *overrides: str) -> str:
    """What a check that has to fail says; there is always something to do about it."""
    found = examined(wanted, *overrides)
    assert found.verdict.status is Status.FAILED, found
    assert found.verdict.mend
    assert "\n" not in found.verdict.says
    return found.verdict.says


@pytest.mark.slow
def test_a_whole_set_up_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["doctor", "--json", "found.json"]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["ok"] is True
    assert [check["name"] for check in found["checks"]] == list(NAMES)
    assert {check["status"] for check in found["checks"]} <= {"ok", "warning"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.json"], "a check left something behind"


def test_without_bubblewrap_the_sandbox_and_its_tool_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap" in failure("sandbox")
    assert "apt-get install bubblewrap" in failure("call code")
    assert examined("call web").verdict.status is Status.OK


def test_a_bare_sandbox_is_a_warning() -> None:
    assert examined("sandbox", "executors.code.sandbox=none").verdict.status is Status.WARNING


def test_a_queue_file_that_is_a_folder(tmp_path: Path) -> None:
    assert str(tmp_path) in failure("broker", "executors.broker=sqlite", f"executors.queues={tmp_path}")


def test_a_queue_file_is_gone_through(tmp_path: Path) -> None:
    queues = tmp_path / "queues.db"
    found = examined("broker", "executors.broker=sqlite", f"executors.queues={queues}")
    assert found.verdict == Verdict(Status.OK, "sqlite: one message there and back")
    assert queues.is_file()


def test_a_service_bus_without_its_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALLWRIGHT_SERVICEBUS", raising=False)
    assert "CALLWRIGHT_SERVICEBUS" in failure("broker", "executors.broker=servicebus")


def test_executors_that_cannot_work(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert url in failure("call code", "executors.code.backend=sandboxfusion", f"executors.code.url={url}")
    assert "nowhere.db" in failure("call web", f"executors.web.corpus={tmp_path / 'nowhere.db'}")
    words = ("executors.broker=sqlite", f"executors.queues={tmp_path / 'q.db'}", "executors.queue_s=0.2")
    assert "callwright worker web" in failure("call web", *words, "executors.external=[web]")


def test_the_azure_tool_that_is_not_there(tmp_path: Path) -> None:
    words = ("tools=[web,azure]", f"executors.azure.folder={tmp_path}")
    assert "make azure" in failure("call azure", *words)


def test_a_missing_model_fails_and_what_needs_it_is_skipped(tmp_path: Path) -> None:
    missing = f"warm_start.checkpoint={tmp_path / 'nowhere'}"
    assert "nowhere" in failure("model", missing)
    skipped = examined("generation", missing).verdict
    assert skipped == Verdict(Status.SKIPPED, "needs model, which see above")


def test_a_device_that_is_not_here() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "no GPU" in failure("device", "engine.device=cuda")


@pytest.mark.slow  # an unreachable server is asked three times, with a pause
def test_a_vendor_that_refuses_is_an_engine_that_failed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"engine.remote.url=http://127.0.0.1:{taken.getsockname()[1]}"
        found = examined("generation", url, "model.path=some-model", config="remote").verdict
    assert found.status is Status.FAILED
    assert "127.0.0.1" in found.says


def test_a_version_that_was_not_tested_is_named_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "trl-99.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 99.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = examined("versions").verdict
    assert found.status is Status.WARNING
    assert "trl 99.0 (tested: " in found.says
    assert "trl==" in found.mend


def test_a_check_that_hangs_is_named_and_the_next_one_runs() -> None:
    never = threading.Event()

    def hang() -> Verdict:
        never.wait()
        return Verdict(Status.OK, "")

    checks = [
        Check("the bus", hang, 0.1, "restart the bus"),
        Check("its queue", hang, 0.1, "", needs=("the bus",)),
        Check("the rest", lambda: Verdict(Status.OK, "well"), 10.0, ""),
    ]
    bus, queue, rest = (finding.verdict for finding in examine(checks))
    never.set()
    assert bus == Verdict(Status.FAILED, "the bus hangs: no end after 0.1 s", "restart the bus")
    assert queue.status is Status.SKIPPED
    assert rest.status is Status.OK


def test_a_failure_is_exit_code_1_and_names_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues").mkdir()
    words = ["executors.broker=sqlite", "executors.queues=queues", "warm_start.checkpoint=nowhere/at/all"]
    assert cli.run(["doctor", "quickstart", *words, "--json", "-"]) == 1
    out, err = capsys.readouterr()
    failed = {check["name"] for check in json.loads(out)["checks"] if check["status"] == "failed"}
    assert failed == {"broker", "model"}
    assert err.splitlines()[-1] == "callwright: 2 of 11 checks failed: broker, model"
    assert "mend: " in err


def test_without_torch_the_core_is_examined(tmp_path: Path) -> None:
    block = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "wandb")
    code = f"import sys; sys.modules.update(dict.fromkeys({block!r})); from callwright.scripts.cli import main; main()"
    command = [sys.executable, "-c", code, "doctor", "--json", "found.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    statuses = {check["name"]: check["status"] for check in json.loads((tmp_path / "found.json").read_text())["checks"]}
    assert statuses == dict.fromkeys(NAMES[2:7], "ok") | {
        "versions": "ok",
        **dict.fromkeys(("device", "model", "generation", "weight sync", "evaluation"), "skipped"),
    }
    assert "callwright[train]" in done.stdout
