"""A run's folder, ``runs/NAME``: what is written when, so that a reader at any moment finds a true record."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from callwright.serving.errors import UserError
from callwright.serving.progress import log
from callwright.training.config import Config, dump_config, load_config

VERSIONS = ("callwright", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "numpy")


def new_run_folder(config: Config, runs: Path) -> Path:
    """Make ``runs/NAME``; an earlier run of that name is kept under the next free ``NAME-old-N``."""
    folder = runs / config.name
    if folder.exists():
        number = 1
        while (kept := runs / f"{config.name}-old-{number}").exists():
            number += 1
        folder.rename(kept)
        log(f"the earlier {folder} is now {kept}")
    folder.mkdir(parents=True)
    describe_run(folder, config)
    return folder


def describe_run(folder: Path, config: Config) -> None:
    """Write what it takes to run it again: the environment with commit and seed, and the resolved config."""
    write_json(folder / "environment.json", environment(config))
    write_text(folder / "config.yaml", dump_config(config))  # last: a run that has it can be resumed


def resumed_run_folder(config: Config, runs: Path) -> Path:
    """The folder of a run to go on with. Raises UserError when there is none."""
    folder = runs / config.name
    if not (folder / "config.yaml").is_file():
        raise UserError(f"nothing to resume: {folder} has no config.yaml; start it without --resume")
    if load_config(folder) != config:
        raise UserError(f"{folder} was started with another config: resume it as `callwright train {folder} --resume`")
    return folder


def environment(config: Config) -> dict[str, Any]:
    """Versions, git commit, seed and machine: what a result needs to be placed. Holds no environment variables."""
    return {
        "versions": {name: installed_version(name) for name in VERSIONS},
        "python": sys.version.split()[0],
        "git": _git(),
        "seed": config.seed,
        "plugins": {name: _contents(name) for name in config.plugins},
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


class MetricLog:
    """``metrics.jsonl``: one object a step, flushed as it is written; a resumed run drops what it will do again, and
    the half line that a full disk left."""

    def __init__(self, path: Path, keep_to: int | None = None) -> None:
        kept = []
        if keep_to is not None and path.is_file():
            *whole, _torn = path.read_text().split("\n")
            kept = [line for line in whole if json.loads(line)["step"] <= keep_to]
        self.path = path
        write_text(path, "".join(line + "\n" for line in kept))

    def write(self, step: int, metrics: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    def rows(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: aside, synced, renamed. What a killed writer left aside, the next one takes
    over."""
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def installed_version(name: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _contents(plugin: str) -> str | None:
    """The hash of a file; None for a module, whose version is its package's matter."""
    return hashlib.sha256(Path(plugin).read_bytes()).hexdigest() if plugin.endswith(".py") else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git() -> dict[str, Any]:
    here = Path(__file__).resolve().parent

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = ask("status", "--porcelain")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
