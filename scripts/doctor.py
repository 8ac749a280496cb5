"""``callwright doctor``: whether this machine and this config work together, part by part."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.text import Text

from callwright.scripts.common import JsonFile, config_from_words, write_json
from callwright.scripts.terminal import plain
from callwright.scripts.train import Words
from callwright.serving.errors import RunError

_STYLES = {"ok": "green", "warning": "yellow", "skipped": "dim", "failed": "bold red"}


def doctor(words: Words = None, json_file: JsonFile = None) -> None:
    """Try each part of a config's set-up once, with its time, the reason where it fails, and the mend.

    Versions, device, tasks, sandbox, broker, one call a tool, the model, one generation, one evaluated task.
    """
    config = config_from_words(words or [], default="quickstart")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from callwright.training.doctor.check import Finding
    from callwright.training.doctor.run import doctor as run_doctor

    on_stdout = json_file is not None and str(json_file) == "-"
    console = Console(highlight=False, soft_wrap=True, stderr=on_stdout)
    findings: list[Finding] = []
    for finding in run_doctor(config):
        findings.append(finding)
        _print(console, finding.to_dict())
    failed = [finding.name for finding in findings if finding.verdict.status == "failed"]
    write_json(
        json_file,
        {"config": config.name, "ok": not failed, "checks": [finding.to_dict() for finding in findings]},
    )
    if failed:
        raise RunError(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")


def _print(console: Console, found: dict[str, Any]) -> None:
    line = Text(f"{found['status']:<8}", _STYLES[found["status"]])
    line.append(f" {found['name']:<12} {found['seconds']:6.1f} s  {plain(found['says'])}", style="not bold not dim")
    console.print(line)
    if found["mend"]:
        console.print(Text(f"{'':31}mend: {plain(found['mend'])}"))
