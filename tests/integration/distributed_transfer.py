"""One of two processes of a trainer that share a vLLM server: a program.

It sends two versions of a model; with the word "sharded" each process holds half of every tensor, as FSDP2 has it, and
with "stale" the folder of the second version holds the first. What each process saw is in ``seen-RANK.json``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from callwright.serving.engines.engine import Request, Sampling
from callwright.serving.errors import RunError
from callwright.serving.models import load
from callwright.training import processes
from callwright.training.config import load_config
from callwright.training.engines import trained_servers
from callwright.training.weights import disk
from callwright.training.weights.verify import own_logprobs
from callwright.training.weights.vllm_servers import transfer_to

PROMPT = list(range(20, 44))


def main(path: str, url: str, link: str) -> None:
    folder, config = Path.cwd(), load_config("quickstart", ["engine.kind=vllm", f"engine.vllm.urls=[{url}]"])
    model = load(path, device="cpu").model
    engine, _ = trained_servers(config, path)
    transfer = transfer_to(config, engine, folder / "weights")
    seen: dict[str, Any] = {"share": engine._pool._limit, "versions": [], "checksums": [], "differences": []}
    if link == "stale":
        disk.write_shards = _stale(disk.write_shards)
    elif link == "sharded":
        _shard(model)
    try:
        for version in (1, 2):
            _move(model, version)
            receipt = transfer.send(version, model)
            done = asyncio.run(engine.generate(Request(PROMPT, 16, Sampling(1.0), key=processes.rank(), session="s")))
            own = own_logprobs(model, [*PROMPT, *done.ids])[len(PROMPT) - 1 :]
            seen["versions"].append(done.version)
            seen["checksums"].append(receipt.checksum)
            seen["differences"].append(max(abs(a - b) for a, b in zip(own, done.logprobs, strict=True)))
    except RunError as error:
        seen["error"] = str(error)
    finally:
        transfer.close()
        engine.close()
    (folder / f"seen-{processes.rank()}.json").write_text(json.dumps(seen))


def _shard(model: Any) -> None:
    """What accelerate does to a model under ``fsdp_version: 2``; it does so on GPUs alone."""
    mesh = init_device_mesh("cpu", (processes.count(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(parameter.to_local().numel() < parameter.numel() for parameter in model.parameters())


def _move(model: Any, version: int) -> None:
    """The same noise on every weight, however it is held."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # the outermost keeps its weights together after a pass without gradients
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(version)) * 0.03
            if isinstance(parameter, DTensor):
                noise = distribute_tensor(noise, parameter.device_mesh, parameter.placements)
            parameter.add_(noise)


def _stale(write: Any) -> Any:
    """The folder of every later version holds what the first one's does."""

    def written(target: Path, tensors: Iterable[Any]) -> Any:
        result, first = write(target, tensors), target.with_name("first")
        if not first.exists():
            shutil.copytree(target, first)
        shutil.rmtree(target)
        shutil.copytree(first, target)
        return result

    return written


if __name__ == "__main__":
    main(*sys.argv[1:])
