"""The README.md of a merged model: what it is, how it was trained and how well it does, from the run's own files.

Invariant: nothing stands there that no file of the run says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callwright.training.config import Config, dump_config
from callwright.training.run_folder import VERSIONS, installed_version
from callwright.training.yaml_values import dump_yaml, parse_yaml

_LICENCES = {"tiny": "apache-2.0", "smollm2": "apache-2.0"}  # ours, and that of the packaged weights


def model_card(config: Config, checkpoint: Path, run: Path | None) -> str:
    """The card of ``checkpoint``, trained with ``config`` in ``run`` (None: no run's). Markdown with YAML in front."""
    base = config.model.path
    front: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["tool-use"]}
    licence = licence_of(base)
    if licence is not None:
        front["license"] = licence
    if base not in _LICENCES and not Path(base).exists():
        front["base_model"] = base
    name = checkpoint.name if run is None else f"{config.name}, {checkpoint.name}"
    sections = [
        f"---\n{dump_yaml(front)}---\n# {name}",
        _use(config, licence),
        _scores(run),
        "## Versions\n\n" + "\n".join(f"- {package} {number}" for package, number in _versions(run).items()),
        f"## Training config\n\n```yaml\n{dump_config(config)}```",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def licence_of(base: str) -> str | None:
    """The licence that a base model's card names, as far as this machine has it; None: not known here."""
    if base in _LICENCES:
        return _LICENCES[base]
    card = Path(base) / "README.md" if Path(base).is_dir() else _cached_card(base)
    if card is None or not card.is_file():
        return None
    text = card.read_text(encoding="utf-8", errors="replace")
    if not text.startswith("---\n"):
        return None
    try:
        front = parse_yaml(text.split("---\n", 2)[1])
    except ValueError:
        return None
    named = front.get("license") if isinstance(front, dict) else None
    return named if isinstance(named, str) else None


def _cached_card(base: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(base, "README.md")
    except HFValidationError:  # no hub id
        return None
    return Path(found) if isinstance(found, str) else None


def _use(config: Config, licence: str | None) -> str:
    told = "explains the tools of a request" if config.system_prompt == "full" else "adds no system prompt of its own"
    return (
        f"Trained with callwright to use tools ({', '.join(config.tools)}) in the dialect `{config.dialect}`. The chat "
        f"template {told}; calls and results of the history are written in the dialect. Give results as mappings.\n\n"
        f"Base model: {config.model.path}; its licence: {licence or 'not known on the machine that merged it'}."
    )


def _scores(run: Path | None) -> str:
    """The table of before and after, from summary.json."""
    path = None if run is None else run / "summary.json"
    if path is None or not path.is_file():
        return ""
    summary: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    lines = ["## Scores", "", "| held-out tasks | success | 95 % interval | valid calls | n |", "|---|---|---|---|---|"]
    for when in ("before", "after"):
        for mode in ("greedy", "sampled"):
            score = summary[when][mode]
            low, high = score["interval"]
            cells = f"{score['success']:.3f} | {low:.3f} to {high:.3f} | {score['valid_call_rate']:.3f}"
            lines.append(f"| {when}, {mode} | {cells} | {score['n_scored']} |")
    return "\n".join(
        [*lines, "", f"After {summary['steps']} steps, {summary['updates']} updates; seed {summary['seed']}."]
    )


def _versions(run: Path | None) -> Mapping[str, str | None]:
    """Those that the run was made with; without a run, those of here."""
    path = None if run is None else run / "environment.json"
    if path is not None and path.is_file():
        made: dict[str, str | None] = json.loads(path.read_text(encoding="utf-8"))["versions"]
        return made
    return {name: installed_version(name) for name in VERSIONS}
