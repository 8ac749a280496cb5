"""One side's GRPO step, timed, and how much memory it took: a program of its own, so that neither side inherits the
other's.

A step is what lies between two batches of rollouts: prepare the batch, loss and gradient, clip, AdamW.
The peak is the highest resident memory of a step above what the process held before it, which is the weights, the
optimizer's two moments and the libraries; gradients are part of the peak.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 60.0  # for a program that was told to end


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds on the clock, seconds of processor time, and bytes above what was held before."""

    wall_s: float
    processor_s: float
    peak: int


class Side:
    """The program of one side and model: ``with Side("TRL", "tiny") as side: side.step()``."""

    def __init__(self, side: str, model: str) -> None:
        self._name = f"{side}, {model}"
        command = [sys.executable, "-m", "benchmarks.update.step", side, model]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self) -> Step:
        """One step; the first also makes what later ones find made."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return Step(**json.loads(line))
        raise RuntimeError(f"the program of {self._name} ended with {self._process.wait(PATIENCE_S)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)


def main(side: str, model: str) -> None:
    """One step for each line of standard input; a JSON object each on standard output."""
    import torch

    from benchmarks.update.sides import LEARNING_RATE, make_trainer

    with tempfile.TemporaryDirectory() as folder:
        trainer, rows = make_trainer(side, model, Path(folder))
        optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=LEARNING_RATE)
        _make_moments(optimizer)
        for _ in sys.stdin:
            held = _settled()
            before = time.perf_counter(), time.process_time()
            _step(trainer, optimizer, len(rows))
            wall, processor = time.perf_counter() - before[0], time.process_time() - before[1]
            print(json.dumps(asdict(Step(wall, processor, _status("VmHWM") - held))), flush=True)


def _step(trainer: Any, optimizer: Any, rows: int) -> None:
    from torch.nn.utils import clip_grad_norm_

    trainer._buffered_inputs = None  # a new generation batch
    trainer._prepare_inputs([{"prompt": ""} for _ in range(rows)])
    for inputs in trainer._buffered_inputs:
        trainer._compute_loss(trainer.model, inputs).backward()
    clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()


def _make_moments(optimizer: Any) -> None:
    import torch

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
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin would count as work
    main(*sys.argv[1:])
