"""One side's GRPO step, timed, and how much memory it took: a program of its own, so that neither side inherits the
other's.

A step is what lies between rollouts and rollouts: prepare the batch, loss and gradient of each micro-batch, clip,
AdamW.
The peak is the highest resident memory of a step above what the process held before it, which is the weights, the
optimizer's two moments and the libraries; gradients are part of the peak.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.update.sides import LEARNING_RATE, make_trainer


def main(side: str, model: str, steps: int) -> None:
    """Print one JSON object: the ``seconds`` of each step after the first, and the ``peak`` in bytes of all."""
    with tempfile.TemporaryDirectory() as folder:
        trainer, rows = make_trainer(side, model, Path(folder))
        optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=LEARNING_RATE)
        _make_moments(optimizer)
        held = _settled()
        seconds = [_step(trainer, optimizer, len(rows)) for _ in range(steps + 1)][1:]
        print(json.dumps({"seconds": seconds, "peak": _status("VmHWM") - held}))


def _step(trainer: Any, optimizer: torch.optim.Optimizer, rows: int) -> float:
    started = time.perf_counter()
    trainer._buffered_inputs = None  # a new generation batch
    trainer._prepare_inputs([{"prompt": ""}] * rows)
    for inputs in trainer._buffered_inputs:
        trainer._compute_loss(trainer.model, inputs).backward()
    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - started


def _make_moments(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _settled() -> int:
    """Give back what is free, forget the peak so far, and say how much is held."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
