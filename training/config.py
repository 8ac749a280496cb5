"""Read a config: a YAML file, what it extends, `key=value` overrides. Every mistake is one line with its mend."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from callwright import configs
from callwright.envs.plugins import load_plugins
from callwright.serving.errors import UserError
from callwright.serving.queues.servicebus_connection import without_secrets
from callwright.training.config_schema import Config, config_keys
from callwright.training.yaml_values import dump_yaml, parse_yaml

__all__ = [
    "Config",
    "ConfigError",
    "config_from",
    "dump_config",
    "find_config",
    "is_override",
    "load_config",
    "shipped_configs",
]

_OVERRIDE = re.compile(r"^[A-Za-z_][\w-]*(\.[\w-]+)*=")


class ConfigError(UserError):
    """A config that cannot be used; the message is one line: what is wrong, and the mend."""


def load_config(path_or_name: str | Path, overrides: Iterable[str] = ()) -> Config:
    """The config in a YAML file, in a run folder, or shipped under that name, with `a.b=value` overrides applied."""
    source = find_config(path_or_name)
    return _resolved(_read(source), source, overrides)


def config_from(data: Mapping[str, Any], source: Path, overrides: Iterable[str] = ()) -> Config:
    """The same from a mapping that stands inside another file, ``source``."""
    return _resolved(_extended(dict(data), source, ()), source, overrides)


def _resolved(data: dict[str, Any], source: Path, overrides: Iterable[str]) -> Config:
    given: dict[str, str] = {}
    for override in overrides:
        given[_apply(data, override)] = override
    if isinstance(named := data.get("plugins"), list | tuple) and all(isinstance(name, str) for name in named):
        data["plugins"] = load_plugins(named, source)  # before the names that they declare are looked for
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, source, given)) from None


def dump_config(config: Config) -> str:
    """The resolved config as YAML: `load_config` of it gives an equal config."""
    return dump_yaml(config.model_dump())  # not in JSON mode: its keys are text, those of {size: weight} are numbers


def shipped_configs() -> dict[str, Path]:
    """Name -> file of the configs that come with the package."""
    folder = Path(str(configs.__file__)).parent
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def is_override(word: str) -> bool:
    """Whether a word of the command line is `key=value`."""
    return _OVERRIDE.match(word) is not None


def find_config(path_or_name: str | Path) -> Path:
    """The file that a path, a run folder or a shipped name stands for."""
    path = Path(path_or_name)
    if path.is_file():
        return path
    if (path / "config.yaml").is_file():
        return path / "config.yaml"
    shipped = shipped_configs()
    if str(path_or_name) in shipped:
        return shipped[str(path_or_name)]
    near = _nearest(str(path_or_name), shipped)
    raise ConfigError(f"no config {path_or_name}: no such file, and the shipped ones are {', '.join(shipped)}{near}")


def _read(path: Path, chain: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's mapping, laid over the one that its `extends:` names (a shipped name, or a file beside it)."""
    if path.resolve() in chain:
        raise ConfigError(f"{path}: extends itself")
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text in UTF-8; a config is YAML") from None
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config is `key: value` lines, not a {type(data).__name__}")
    return _extended(data, path, chain)


def _extended(data: dict[str, Any], path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    base = data.pop("extends", None)
    if base is None:
        return data
    beside = path.parent / str(base)
    return _merge(_read(beside if beside.is_file() else find_config(base), (*chain, path.resolve())), data)


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in above.items():
        old = below.get(key)
        below[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return below


def _apply(data: dict[str, Any], override: str) -> str:
    """Lay one `a.b=value` over the mapping; returns its dotted key."""
    if not is_override(override):
        raise ConfigError(f"{override}: an override is key=value, such as grpo.steps=10")
    key, _, text = override.partition("=")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{override}: {error}; put quotes around the value") from None
    *parents, last = key.split(".")
    here = data
    for parent in parents:
        if here.get(parent) is None:
            here[parent] = {}
        if not isinstance(here[parent], dict):
            raise ConfigError(f"{override}: {parent} is a value, not a section")
        here = here[parent]
    here[last] = value
    return key


def _explain(error: ValidationError, source: Path, given: Mapping[str, str]) -> str:
    """The first mistake in one line, where it came from first."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"])
    # An override above or below the key is the likelier culprit than the file it was laid over.
    where = next((text for name, text in given.items() if _above(name, key) or _above(key, name)), _shown(source))
    if first["type"] == "extra_forbidden":
        line = f"{where}: unknown key {key}{_nearest_key(key)}"
    else:
        message = first["msg"]
        if first["type"] == "model_type":
            line = f"{where}: {key} is a section of keys, not {_short(first['input'])}"
        elif first["type"] == "value_error":  # a check of ours: it says what and the mend
            line = f"{where}: {key and key + ': '}{message.removeprefix('Value error, ')}"
        else:
            line = f"{where}: {key} {message.removeprefix('Input ')}, not {_short(first['input'])}"
    more = len(problems) - 1
    return without_secrets(line) + (f" (and {more} more)" if more else "")


def _nearest_key(key: str) -> str:
    """A suggestion: the nearest name in the same section, else the same name in another one, else what there is."""
    parts = key.split(".")
    keys = [known.split(".") for known, _, _ in config_keys()]
    # NAME is where the user's own name stands (a task family).
    beside = [known for known in keys if len(known) == len(parts) and all(map(_same, known[:-1], parts[:-1]))]
    siblings = [known[-1] for known in beside]
    close = difflib.get_close_matches(parts[-1], siblings, n=1)
    if close:
        return f"; did you mean {'.'.join([*parts[:-1], close[0]])}?"
    elsewhere = [known for known in keys if known[-1] == parts[-1]]
    if elsewhere:
        return f"; did you mean {'.'.join(elsewhere[0])}?"
    return f"; there are {', '.join(siblings)}"


def _same(known: str, part: str) -> bool:
    return known in (part, "NAME")


def _above(key: str, other: str) -> bool:
    return other == key or other.startswith(f"{key}.")


def _shown(path: Path) -> str:
    """The shorter of the path and the same path from here."""
    return min(str(path), os.path.relpath(path), key=len)


def _nearest(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _short(value: Any) -> str:
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
