"""A trainer of two processes whose policy is a real vLLM server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from two_processes import FSDP2, two_processes
from vllm_servers import INSTALLED, SHORT_RUN, real

from callwright.serving.engines.vllm.admin import EXTENSION
from callwright.training.checkpoints import WARM_STARTS, complete

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed: make vllm"),
]

MODEL = str(WARM_STARTS / "quickstart")
PROGRAM = str(Path(__file__).with_name("distributed_transfer.py"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real(MODEL, {"VLLM_SERVER_DEV_MODE": "1"}, **{"worker-extension-cls": EXTENSION}) as process:
        yield process.url


def seen_by_both(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("held", ["whole", "sharded"])
def test_both_sample_from_what_the_first_sent(held: str, url: str, tmp_path: Path) -> None:
    two_processes(PROGRAM, MODEL, url, held, folder=tmp_path)
    first, second = seen_by_both(tmp_path)
    for seen in (first, second):
        assert "error" not in seen
        assert seen["versions"] == [1, 2]
        assert seen["share"] == 128
        assert max(seen["differences"]) < 1e-3
    assert first["checksums"] == second["checksums"]
    assert len(set(first["checksums"])) == 2


def test_a_link_that_breaks_stops_both(url: str, tmp_path: Path) -> None:
    two_processes(PROGRAM, MODEL, url, "stale", folder=tmp_path)
    first, second = seen_by_both(tmp_path)
    assert first["error"] == second["error"]
    assert "did not get version 2" in first["error"]
    assert first["versions"] == second["versions"] == [1]


@pytest.mark.parametrize(
    ("program", "order"),
    [
        pytest.param(["-m", "callwright"], [], id="synchronous"),
        pytest.param(["-m", "callwright"], ["grpo.asynchronous={max_staleness: 1}"], id="asynchronous"),
        pytest.param([FSDP2, "callwright"], [], id="sharded"),
    ],
)
def test_a_run_of_two_processes(program: list[str], order: list[str], tmp_path: Path) -> None:
    """The first starts the server; both roll out, train, and stay at the policy that was sampled from."""
    words = ("name=shared", *SHORT_RUN, "grpo.micro_batch=8", "checkpoint.every=1")
    two_processes(*program, "train", "quickstart", *words, *order, folder=tmp_path)
    run = tmp_path / "runs" / "shared"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["outcome/scored"] + row["outcome/policy_fault"] == 32
        assert row["weights/sent_bytes"] > 0
    assert rows[0]["sampling/ratio_error_max"] < 1e-2
    if not order:  # what a later batch was sampled from is what the trainer then has
        assert rows[2]["staleness/max"] == 0.0
        assert rows[2]["sampling/ratio_error_max"] < 1e-2
    step, saved = complete(run / "checkpoints")[-1]
    assert step == 3
    assert (saved / "pytorch_model_fsdp.bin").is_file() is (FSDP2 in program)  # accelerate's word that it did shard
    summary = json.loads((run / "summary.json").read_text())
    assert summary["updates"] == 6
    assert summary["after"]["greedy"]["n_scored"] == 14
