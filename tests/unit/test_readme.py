"""Every command that the README and the docs show exists: make targets and verbs."""

from __future__ import annotations

import re
from pathlib import Path

from callwright.scripts.cli import app

ROOT = Path(__file__).parents[2]
VERBS = {command.name for command in app.registered_commands}
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(markdown: str) -> list[str]:
    """Lines of fenced blocks, and inline code."""
    fenced = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced.findall(markdown) for line in block.splitlines()[1:-1]]
    return lines + re.findall(r"`([^`\n]+)`", fenced.sub("", markdown))


def unknown_commands(markdown: str) -> list[str]:
    """Commands that neither the Makefile nor the command line has."""
    unknown = []
    for line in code_of(markdown):
        command = line.strip().removeprefix("$ ")
        make = re.match(r"(?:[A-Z_]+=\S+ +)*make +([a-z][\w-]*)", command)
        verb = re.match(r"(?:\.venv/bin/)?callwright +([a-z]\w*)", command)
        if make and make[1] not in TARGETS:
            unknown.append(f"make {make[1]}")
        if verb and verb[1] not in VERBS:
            unknown.append(f"callwright {verb[1]}")
    return unknown


def test_the_check_sees_what_is_not_there() -> None:
    page = (
        "Say `make nothing`.\n```sh\n$ CALLWRIGHT_TORCH=cuda make neither\n.venv/bin/callwright fly x\nmake test\n```\n"
    )
    assert unknown_commands(page) == ["make neither", "callwright fly", "make nothing"]


def test_every_command_in_the_readme_and_the_docs_exists() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert {str(page): unknown_commands(page.read_text()) for page in pages} == {str(page): [] for page in pages}
