"""A user's own tools, task families, reward functions and benchmarks: Python modules that a config names.

A module declares what the shipped registries declare, under the same names: ``TOOLS``, ``FAMILIES``, ``REWARDS`` and
``BENCHMARKS``, each a mapping of a name to its declaration. Invariants: a module is loaded once a process; one that
cannot be used adds nothing; a run folder's config runs no file that came with the folder, so that looking at a
stranger's run executes none of their code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from callwright.envs.executors.registry import TOOLS
from callwright.envs.executors.tool_kind import ToolKind
from callwright.envs.registry import Registry
from callwright.envs.rewards.registry import REWARDS
from callwright.envs.rewards.reward import RewardFunction
from callwright.envs.tasks.benchmarks.benchmark import Benchmark
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.family import Family
from callwright.envs.tasks.registry import FAMILIES
from callwright.serving.errors import UserError

RUN_CONFIG = "config.yaml"  # the name under which a run folder keeps its config


@dataclass(frozen=True, slots=True)
class _Table:
    """A registry, and what an entry of it must be."""

    registry: Registry[Any]
    accepts: Callable[[str, Any], bool]
    wants: str


def _is_subclass(base: type) -> Callable[[str, Any], bool]:
    return lambda name, value: isinstance(value, type) and issubclass(value, base)


_TABLES: Mapping[str, _Table] = {
    "TOOLS": _Table(TOOLS, lambda name, kind: isinstance(kind, ToolKind) and kind.tool.name == name, "ToolKind"),
    "FAMILIES": _Table(FAMILIES, _is_subclass(Family), "subclass of Family"),
    "REWARDS": _Table(REWARDS, _is_subclass(RewardFunction), "subclass of RewardFunction"),
    "BENCHMARKS": _Table(BENCHMARKS, lambda name, b: isinstance(b, Benchmark) and b.name == name, "Benchmark"),
}
_loaded: dict[str, ModuleType] = {}


def load_plugins(names: Sequence[str], source: Path) -> tuple[str, ...]:
    """Load the modules that the config file ``source`` names, and give them back as names that hold everywhere: a
    file by its whole path. Raises UserError with one line."""
    return tuple(_load(name, source) for name in names)


def _load(name: str, source: Path) -> str:
    key = str(_file(name, source)) if name.endswith(".py") else name
    if key not in _loaded:
        module = _executed(name, key)
        _declare(name, module)
        _loaded[key] = module
    return key


def _file(name: str, source: Path) -> Path:
    """The file of that name. That of a run's own config stands outside of the run, by its whole path."""
    folder = source.parent.resolve()
    if source.name == RUN_CONFIG:
        path = Path(name).resolve()
        if not Path(name).is_absolute() or path.is_relative_to(folder):
            raise UserError(f"plugins: {source} is a run's config: it may not name a file of the run itself, {name}")
        places = [path]
    else:
        places = [folder / name, Path.cwd() / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UserError(f"plugins: no file {name}; looked for {', '.join(map(str, dict.fromkeys(places)))}")
    return found.resolve()


def _executed(name: str, key: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return importlib.import_module(key)
        spec = importlib.util.spec_from_file_location(f"callwright_plugin_{Path(key).stem}", key)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses and pickles look their module up there
        spec.loader.exec_module(module)
        return module
    except Exception as error:  # whatever a user's own module raises is told in one line
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}: " if last.filename == key else ""
        raise UserError(f"plugins: {name} cannot be loaded: {where}{type(error).__name__}: {error}") from error


def _declare(name: str, module: ModuleType) -> None:
    declared = {table: entries for table in _TABLES if (entries := getattr(module, table, None))}
    if not declared:
        raise UserError(f"plugins: {name} declares none of {', '.join(_TABLES)}")
    for table, entries in declared.items():
        if not isinstance(entries, Mapping):
            raise UserError(f"plugins: {name}: {table} is a mapping of names, not a {type(entries).__name__}")
        for entry, value in entries.items():
            if not _TABLES[table].accepts(entry, value):
                raise UserError(f"plugins: {name}: {table}[{entry!r}] is no {_TABLES[table].wants} of that name")
            if entry in _TABLES[table].registry:
                raise UserError(f"plugins: {name}: there is a {_TABLES[table].registry.kind} {entry} already")
    for table, entries in declared.items():
        _TABLES[table].registry.add(entries)
