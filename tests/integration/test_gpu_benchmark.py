"""The GPU benchmark's code, tried on a CPU at a size that means nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    return importlib.import_module("benchmarks.gpu")


@pytest.mark.timeout(600)
def test_it_measures_rollouts_and_updates(gpu: Any, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    assert gpu.main(["--size", "tiny", "--device", "cpu", "--repeats", "1", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert all(value > 0 for value in result["headline"].values())
    assert [row["device"] for row in result["rows"]] == ["cpu", "cpu"]


def test_without_a_device_it_says_so(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert gpu.main([]) == 2
    assert "no CUDA device here" in capsys.readouterr().err


def test_operations_of_a_token_are_palms(gpu: Any) -> None:
    size = gpu.SIZES["1b"]
    assert gpu.flops_a_token(10**9, size) == 6e9 + 12 * 16 * 2048 * 768
