"""What only a GPU can show: the engine and the trainer on it, in bfloat16, with a model made here."""

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module benchmarks.gpu, where there is a device for it."""
    torch = pytest.importorskip("torch", reason="the train extra is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu")


def test_the_engines_logprobs_are_those_of_a_plain_forward_pass(benchmark: Any) -> None:
    """To what bfloat16 can tell: the ratio before the first update is near 1 at every token."""
    import torch

    from callwright.serving.engines.engine import Request, Sampling
    from callwright.serving.engines.transformers_engine import TransformersEngine

    size = benchmark.SIZES["0.5b"]
    model = benchmark._model(size, "cuda", "bfloat16")
    engine = TransformersEngine(model, rows=4, context=128)
    prompts = [list(range(10 + row, 40 + row)) for row in range(4)]

    async def generate() -> Any:
        requests = [Request(ids, 32, Sampling(), key=row, session=str(row)) for row, ids in enumerate(prompts)]
        return await asyncio.gather(*map(engine.generate, requests))

    try:
        done = asyncio.run(generate())
    finally:
        engine.close()
    for ids, each in zip(prompts, done, strict=True):
        whole = torch.tensor([[*ids, *each.ids]], device="cuda")
        with torch.no_grad():
            scores = model(whole).logits[0].float().log_softmax(-1)
        plain = [float(scores[place, token]) for place, token in enumerate(each.ids, start=len(ids) - 1)]
        assert each.logprobs == pytest.approx(plain, abs=0.1)


@pytest.mark.timeout(900)
def test_the_benchmark_runs(benchmark: Any, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    assert benchmark.main(["--size", "0.5b", "--repeats", "2", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert 0 < result["headline"]["update_mfu"] < 1
    assert all(row["device"] != "cpu" for row in result["rows"])
