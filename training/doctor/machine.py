"""What the machine is: the versions of the libraries beside the tested ones, the device, the memory."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import os
import platform
import sys

from callwright.serving.errors import UserError
from callwright.training.config import Config
from callwright.training.doctor.check import Status, Verdict
from callwright.training.layout import layout_of

# What a result depends on, or what a run cannot do without.
LIBRARIES = (
    *("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "safetensors"),
    *("numpy", "pydantic", "typer", "wandb"),
)
_GIB = 2**30


def tested_versions() -> dict[str, str]:
    """Library -> version of the lock that the tests run with."""
    text = (importlib.resources.files("callwright") / "constraints.txt").read_text(encoding="utf-8")
    pins = (line.partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {name: version for name, _, version in pins}


def check_versions() -> Verdict:
    """Whether the libraries are the tested ones; a build's tag (+cpu) does not count."""
    tested = tested_versions()
    found = {name: _installed(name) for name in LIBRARIES}
    other = [
        f"{name} {version} (tested: {tested[name]})"
        for name, version in found.items()
        if version is not None and version.partition("+")[0] != tested[name]
    ]
    absent = [name for name, version in found.items() if version is None]
    says = f"Python {platform.python_version()}, {len(found) - len(other) - len(absent)} libraries as tested"
    says += f"; not installed: {', '.join(absent)}" if absent else ""
    if not other:
        return Verdict(Status.OK, says)
    words = " ".join(f"{name}=={tested[name]}" for name in found if any(o.startswith(f"{name} ") for o in other))
    return Verdict(Status.WARNING, f"{says}; {', '.join(other)}", f"pip install {words}")


def check_device(config: Config) -> Verdict:
    """The device that the engine will have. Raises UserError where the config asks for one that is not here."""
    import torch

    asked, here = config.engine.device, torch.cuda.is_available()
    if asked == "cuda" and not here:
        raise UserError("engine.device=cuda, and torch sees no GPU")
    memory = f"{os.cpu_count()} cores, {_free_bytes() / _GIB:.1f} GiB of memory free"
    if asked == "cpu" or not here:
        built = "" if asked == "cpu" or torch.version.cuda else "; this torch is built without CUDA"
        return _beside_the_estimate(config, f"cpu on {sys.platform}, {memory}{built}", _free_bytes())
    free, whole = torch.cuda.mem_get_info()
    gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return _beside_the_estimate(
        config, f"cuda: {gpus}, {free / _GIB:.1f} of {whole / _GIB:.1f} GiB free; {memory}", free
    )


def _beside_the_estimate(config: Config, says: str, free: int) -> Verdict:
    """What the device is, and what training with this config needs of it by the layout's formulas."""
    sizes = layout_of(config, config.name).sizes.values()
    needed = sum(size for size in sizes if size is not None)
    least = "at least " if None in sizes else ""
    says += f"; training needs {least}{needed / _GIB:.1f} GiB" if needed else "; what training needs is not known"
    if needed > free:
        mend = "a smaller grpo.micro_batch, engine.max_batch or engine.max_context, or model.lora"
        return Verdict(Status.WARNING, says, mend)
    return Verdict(Status.OK, says)


def _free_bytes() -> int:
    """Memory that a process can still have without swapping, where the system tells it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
