"""``callwright compare A B``: what changed between two evaluations of the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callwright.scripts.common import JsonFile, write_json

if TYPE_CHECKING:
    from callwright.envs.compare import Comparison

FolderArgument = Annotated[Path, typer.Argument(help="A folder that an evaluation wrote.", show_default=False)]


def compare(a: FolderArgument, b: FolderArgument, json_file: JsonFile = None) -> None:
    """The paired difference B - A with its 95 % interval, and the tasks that flipped."""
    from callwright.envs.compare import compare_folders

    found = compare_folders(a, b)
    for comparison in found:
        _print(comparison)
    write_json(json_file, {"a": str(a), "b": str(b), "comparisons": [comparison.to_dict() for comparison in found]})


def _print(comparison: Comparison) -> None:
    low, high = comparison.difference.interval
    chance = "" if comparison.mcnemar_p is None else f", McNemar p {comparison.mcnemar_p:.3g}"
    apart = f", {comparison.unpaired} in one alone" if comparison.unpaired else ""
    print(f"{comparison.name}: {comparison.a:.3f} -> {comparison.b:.3f} on {comparison.paired} tasks{apart}")
    print(f"  difference {comparison.difference.value:+.3f} ({low:+.3f} to {high:+.3f}, paired bootstrap{chance})")
    for label, keys in (("gained", comparison.gained), ("lost", comparison.lost)):
        print(f"  {label} {len(keys)}" + (f": {' '.join(keys)}" if keys else ""))
