"""The configuration page, made from the schema; ``make docs`` writes it to docs/configuration.md."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from callwright.envs.rewards.registry import REWARDS
from callwright.envs.tasks.registry import FAMILIES
from callwright.training.config_schema import Config, sections_in

INTRO = """# Configuration

Made from training/sections/, the dials in envs/tasks/ and the weights in envs/rewards/ by `make docs`; change it
there.

`callwright train CONFIG key=value ...` takes a file, a run folder, or a name shipped in configs/. A file may say
`extends: NAME` and then holds only what differs. Values are YAML, keys are dotted: `grpo.steps=10 model.lora.r=8`.
An unknown key or a wrong value ends the command with exit code 2 and one line."""

_NAMES = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    dict: "mapping",
    tuple: "list",
}


def describe() -> str:
    """Every key as Markdown: name, type, default and meaning."""
    return "\n".join([INTRO, *_section(Config, ""), *_families(), *_rewards()]) + "\n"


def _section(model: type[BaseModel], prefix: str) -> Iterator[str]:
    rows, below = [], []
    for name, field in model.model_fields.items():
        sections = sections_in(field.annotation)
        named = "NAME." if get_origin(field.annotation) is dict else ""
        below += [(section, f"{prefix}{name}.{named}") for section in sections]
        if field.annotation not in sections:
            cells = (
                f"`{prefix}{name}`",
                _type(field.annotation),
                f"`{_value(field.get_default(call_default_factory=True))}`",
                " ".join((field.description or "").split()),
            )
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    yield from (
        "",
        f"## {prefix.rstrip('.')}" if prefix else "## The root",
        "",
        _doc(model),
    )
    if rows:
        yield from ("", "| key | type | default | meaning |", "|---|---|---|---|", *rows)
    for section, deeper in below:
        yield from _section(section, deeper)


def _families() -> Iterator[str]:
    """The dials of every task family."""
    yield from ("", "## Dials of the task families", "", "`tasks.families.NAME.dials`, by the family's name or `kind`.")
    for name, family in FAMILIES.items():
        doc = _doc(family.dials_type)
        fields = family.dials_type.model_fields.items()
        dials = "; ".join(
            f"`{dial}` = `{_value(field.get_default(call_default_factory=True))}`" for dial, field in fields
        )
        yield from ("", f"**{name}**. {doc} {f'Defaults: {dials}.' if dials else ''}".rstrip())


def _rewards() -> Iterator[str]:
    """The weights of every reward function."""
    yield from ("", "## Reward functions and their weights", "", "`reward.weights`, by the function's name.")
    for name, function in REWARDS.items():
        weights = "; ".join(
            f"`{weight}` = `{_value(field.get_default())}` {field.description}"
            for weight, field in function.model_fields.items()
        )
        yield from ("", f"**{name}**. {_doc(function)} Weights: {weights}.")


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split()).replace("``", "`")


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(option) for option in inner)
    if origin is Annotated:
        return _type(inner[0])
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _NAMES[origin or annotation]


def _value(value: Any) -> str:
    return str(value) if isinstance(value, str | Path) else json.dumps(value)


if __name__ == "__main__":
    print(describe(), end="")
