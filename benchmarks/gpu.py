"""How fast is the transformers engine, and an update, on a GPU? With a model made here: random weights, no download.

Rollouts: rows of one prompt length decode together to a fixed number of tokens, through the engine that training uses,
without tools. Updates: TRL's trainer as training builds it, on made-up rows of one length. MFU is the floating-point
operations that the model needs over those that the device could do (Chowdhery et al. 2022, PaLM, appendix B): a token
takes 6 N in an update, and 12 x layers x width x tokens for attention; N counts all parameters but the embedding.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Measured, Spread, progress, run
from callwright.serving.errors import UserError

HEADLINE = ("rollout_tokens_per_s", "update_tokens_per_s", "update_mfu")
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12}  # dense bfloat16, from the data sheets


@dataclass(frozen=True, slots=True)
class Size:
    """A model and a load. ``rows`` decode at once and ``group_rows`` are one update, both of prompt + new tokens."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    rows: int
    prompt: int
    new: int
    group_rows: int
    micro_batch: int


SIZES = {
    "tiny": Size(2, 64, 128, 4, 2, 600, rows=4, prompt=24, new=16, group_rows=8, micro_batch=4),
    "0.5b": Size(24, 1024, 4096, 16, 8, 32_768, rows=128, prompt=512, new=256, group_rows=64, micro_batch=8),
    "1b": Size(16, 2048, 8192, 32, 8, 32_768, rows=128, prompt=512, new=256, group_rows=64, micro_batch=8),
}


@dataclass(slots=True)
class MadeUpRollouts:
    """Stands where training's rollouts stand: rows of random tokens, of which the second half is sampled."""

    size: Size
    last: dict[str, float] = field(default_factory=dict)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        rng, size, rows = random.Random(trainer.rollout_index), self.size, len(prompts)
        return {
            "prompt_ids": [_tokens(rng, size.prompt) for _ in range(rows)],
            "completion_ids": [_tokens(rng, size.new) for _ in range(rows)],
            "logprobs": [[-1.0] * size.new for _ in range(rows)],
            "env_mask": [[1] * size.new for _ in range(rows)],
            "reward": [float(row % 2) for row in range(rows)],
        }


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(10, 500) for _ in range(count)]  # what the tokenizer has a text for


def _model(size: Size, device: str, dtype: str) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=4096,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(getattr(torch, dtype)).to(device).eval()


async def _decode(engine: Any, size: Size, repeat: int) -> float:
    """Sampled tokens a second of all rows together, prefill included."""
    from callwright.serving.engines.engine import Request, Sampling

    rng = random.Random(repeat)
    names = [f"{repeat}-{row}" for row in range(size.rows)]
    engine.open(names)
    requests = [
        Request(_tokens(rng, size.prompt), size.new, Sampling(), key=row, session=name)
        for row, name in enumerate(names)
    ]
    started = time.perf_counter()
    done = await asyncio.gather(*map(engine.generate, requests))
    seconds = time.perf_counter() - started
    for name in names:
        engine.release(name)
    return sum(len(each.ids) for each in done) / seconds


def _rollouts(model: Any, size: Size, repeats: int) -> Spread:
    from callwright.serving.engines.transformers_engine import TransformersEngine

    engine = TransformersEngine(model, rows=size.rows, context=size.prompt + size.new + 1)
    try:
        asyncio.run(_decode(engine, size, -1))  # kernels are chosen and memory is taken
        return Spread.of([asyncio.run(_decode(engine, size, repeat)) for repeat in range(repeats)])
    finally:
        engine.close()


def _updates(model: Any, size: Size, device: str, dtype: str, repeats: int) -> Spread:
    """Tokens a second that go through forward and backward pass and the optimizer."""
    from callwright.serving.models.tiny import train_tokenizer
    from callwright.serving.protocol import DEFAULT_TOOLS
    from callwright.training.config import load_config
    from callwright.training.grpo import build_trainer
    from callwright.training.interrupt import graceful_interrupt

    words = [
        f"engine.device={device}",
        f"engine.dtype={dtype}",
        f"grpo.steps={repeats + 1}",
        f"grpo.prompts_per_step={size.group_rows // 4}",
        "grpo.num_generations=4",
        f"grpo.micro_batch={size.micro_batch}",
        f"budgets.policy_tokens={size.new}",
        "checkpoint.every=0",
        "grpo.trl.num_iterations=1",
    ]
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder, graceful_interrupt() as interrupt:
        trainer = build_trainer(
            load_config("quickstart", words),
            Path(folder),
            model.train(),
            train_tokenizer(["what is it?"], DEFAULT_TOOLS),
            MadeUpRollouts(size),  # type: ignore[arg-type]
            lambda step, row: seconds.append(row["step_seconds"]),
            interrupt,
        )
        trainer.train()
    tokens = size.group_rows * (size.prompt + size.new)
    return Spread.of([tokens / taken for taken in seconds[1:]])


def flops_a_token(parameters: int, size: Size) -> float:
    """Of an update: ``parameters`` are those that multiply, the embedding left out; see the module's head."""
    return 6 * parameters + 12 * size.layers * size.width * (size.prompt + size.new)


def _peak(device: str, given: float | None) -> tuple[float, str, str]:
    """The device's operations a second, where they are from, and its name."""
    import torch

    name = torch.cuda.get_device_name(device) if device == "cuda" else "cpu"
    if given is not None:
        return given * 1e12, "as given", name
    for model, peak in PEAK.items():
        if model in name:
            return peak, "from the data sheet", name
    side = 4096 if device == "cuda" else 512
    square = torch.randn(side, side, device=device)
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        float((square @ square)[0, 0])  # reading a number waits for the device
        rates.append(2 * side**3 / (time.perf_counter() - started))
    return max(rates), "of a large matrix product here", name


def _require(device: str) -> None:
    """Raises UserError where there is no such device."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device here; the code can be tried with: --device cpu --size tiny")


def measure(options: argparse.Namespace) -> Measured:
    size, device = SIZES[options.size], options.device
    _require(device)
    dtype = "float32" if device == "cpu" else "bfloat16"
    peak, source, name = _peak(device, options.peak_tflops)
    model = _model(size, device, dtype)
    parameters = model.num_parameters() - model.get_input_embeddings().weight.numel()
    progress(f"gpu: {model.num_parameters() / 1e6:.1f} million parameters on {name}: rollouts")
    decoded = _rollouts(model, size, options.repeats)
    progress("gpu: updates")
    trained = _updates(model, size, device, dtype, options.repeats)
    mfu = trained.median * flops_a_token(parameters, size) / peak
    rows = [
        {**decoded.row("rollouts", "sampled", "tokens/s"), "device": name},
        {**trained.row("updates", "trained", "tokens/s"), "device": name},
    ]
    notes = [
        f"{name}, {dtype}; {size.rows} rows of {size.prompt} + {size.new} tokens decode at once",
        f"an update is {size.group_rows} rows in micro-batches of {size.micro_batch}",
        f"MFU by {peak / 1e12:.4g} TFLOP/s, {source}",
        "not run: several devices, vLLM, a trained model, tools",
    ]
    headline = {
        "rollout_tokens_per_s": decoded.median,
        "update_tokens_per_s": trained.median,
        "update_mfu": mfu,
    }
    return Measured(rows, headline, notes)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="0.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peak-tflops", type=float, help="of the device in its number format, for MFU")


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return run("gpu", measure, HEADLINE, argv, _options)
    except UserError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
