"""Which way the doors between the rooms open, and what the core installation can do without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import callwright

ROOT = Path(__file__).parents[2]
PACKAGE = Path(callwright.__file__).parent
ROOMS = ("serving", "envs", "training", "configs", "scripts")
MAY_IMPORT = {
    "serving": {"serving"},
    "envs": {"envs", "serving"},
    "training": {"training", "envs", "serving", "configs"},
    "configs": {"configs"},
    "scripts": set(ROOMS),
}
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "wandb", "matplotlib", "gguf", "vllm")
SDKS = ("openai", "anthropic", "google.genai", "ollama")  # vendors' packages: for tests alone
LATE = ("azure.servicebus",)  # imported when a config asks for it
# Rooms of the core installation, with everything below them; and single modules of the others.
CORE_PACKAGES = (
    *("serving.protocol", "serving.wires", "serving.queues"),
    *("envs.executors", "envs.tasks", "envs.rewards", "scripts", "training.experiments"),
)
STAGES = ("parser", "validation", "run_model", "servicebus_web")  # names for the modules behind them
CORE_MODULES = (
    *(f"serving.{stage}" for stage in STAGES),
    *("serving.errors", "serving.progress", "envs.traces", "envs.trajectory"),
    *("training.config_docs", "training.executor_settings", "training.doctor.run"),
    *("training.alarms", "training.signs", "training.watch"),
)


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, at any depth of its code; ``from a import b`` gives a.b."""
    package = ("callwright", *path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_every_room_is_linked_into_the_package() -> None:
    links = {link.name for link in PACKAGE.iterdir() if link.is_symlink()}
    assert links == {*ROOMS, "constraints.txt"}  # the doctor reads the lock
    assert all((PACKAGE / room).resolve() == ROOT / room for room in ROOMS)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_doors_open_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        first, *rest = name.split(".")
        assert first not in ROOMS, f"{name}: the import name of a room is callwright.{first}"
        if first == "callwright" and rest and rest[0] in ROOMS:
            assert rest[0] in MAY_IMPORT[room], f"{room} must not import {name}"


def test_the_core_imports_without_torch() -> None:
    run_without_heavy(
        f"""
        import importlib, pkgutil
        for name in {CORE_MODULES!r}:
            importlib.import_module("callwright." + name)
        for name in {CORE_PACKAGES!r}:
            package = importlib.import_module("callwright." + name)
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                importlib.import_module(module.name)
        """
    )


def test_configs_load_without_torch() -> None:
    run_without_heavy(
        """
        from callwright.training.config import load_config, shipped_configs
        assert [load_config(name) for name in shipped_configs()]
        """
    )


def test_protocol_does_not_load_the_wires() -> None:
    run_without_heavy(
        """
        import callwright.serving.protocol
        assert "callwright.serving.wires" not in sys.modules
        """
    )


def run_without_heavy(code: str) -> None:
    """Run code in a fresh interpreter in which every heavy library fails to import."""
    lines = [
        "import sys",
        f"sys.modules.update(dict.fromkeys({HEAVY + SDKS + LATE!r}))",  # None in sys.modules: importing it raises
        *(line.removeprefix("        ") for line in code.splitlines()),
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
