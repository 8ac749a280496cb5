"""From the model's text to the arguments of the Azure CLI, or a refusal that the model reads.

Invariants: no shell is involved; every argument is a listed command's word, a listed flag spelt out, or a value of one;
no value makes the CLI read a file outside the scratch folder (``@file``) or call a URL.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from callwright.envs.executors.azure.allowed import ADDED, EVERYWHERE, STORAGE, Flag, Flags

LONGEST_COMMAND = 32_000  # bytes
LONGEST_QUERY = 300  # characters of a JMESPath, which the CLI evaluates
_OPERATOR = re.compile(r"[();<>|&]+")
_NAME = re.compile(r"[$A-Za-z0-9-]{1,63}")


class Refused(Exception):
    """The command is not run. One line: what is wrong, and what would do."""


def read_command(command: str, allowed: Mapping[str, Flags] = STORAGE, group: str | None = None) -> tuple[str, ...]:
    """The arguments after ``az``. With ``group`` every command is about that resource group. Raises Refused."""
    words = _split(command)
    if not words or words[0] != "az":
        raise Refused("a command begins with az")
    name, rest = _path(words[1:], allowed)
    flags = {spelling: flag for flag in (*allowed[name], *EVERYWHERE) for spelling in flag.names}
    arguments = list(_arguments(name, rest, flags))
    if group is not None:
        for flag, value in arguments:
            if "--resource-group" in flag.names and value.values != (group,):
                raise Refused(f"only the resource group {group} may be named")
        arguments = [(flag, value) for flag, value in arguments if "--resource-group" not in flag.names]
    words = [word for _, argument in arguments for word in argument.words]
    ours = ("--resource-group", group) if group is not None else ADDED.get(name, ())
    return (*name.split(), *words, *ours)


def _split(command: str) -> list[str]:
    if len(command.encode()) > LONGEST_COMMAND:
        raise Refused(f"the command is longer than {LONGEST_COMMAND} bytes")
    if "\0" in command:
        raise Refused("the command holds a NUL character")
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise Refused(f"the command cannot be split into words: {error}") from None
    for word in words:
        if _OPERATOR.fullmatch(word):
            raise Refused(
                f"there is no shell, so {word} does nothing: one az command a call, special characters quoted"
            )
    return words


def _path(words: Sequence[str], allowed: Mapping[str, Flags]) -> tuple[str, Sequence[str]]:
    """The command's name and what follows it: the longest run of plain words must be a listed command."""
    length = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    name = " ".join(words[:length])
    if name in allowed:
        return name, words[length:]
    raise Refused(f"az {name} is not available; {_alternatives(words[:length], allowed)}")


def _alternatives(words: Sequence[str], allowed: Mapping[str, Flags]) -> str:
    """What there is instead: the commands of the nearest group, so that a typo costs one call."""
    for length in range(len(words), 0, -1):
        prefix = " ".join(words[:length])
        near = [name for name in allowed if name.startswith(f"{prefix} ")]
        if near:
            return "there are " + ", ".join(f"az {name}" for name in near)
    groups = dict.fromkeys(" ".join(name.split()[:2]) for name in allowed)
    return "there are commands of " + ", ".join(f"az {group}" for group in groups)


@dataclass(frozen=True, slots=True)
class _Argument:
    """A flag as it was written, and its values."""

    words: tuple[str, ...]
    values: tuple[str, ...]


def _arguments(name: str, words: Sequence[str], flags: Mapping[str, Flag]) -> Iterator[tuple[Flag, _Argument]]:
    at, seen = 0, set[Flag]()
    while at < len(words):
        spelling, joined, inline = words[at].partition("=")
        flag = flags.get(spelling)
        if flag is None:
            known = ", ".join(dict.fromkeys(flag.names[0] for flag in flags.values()))
            raise Refused(f"az {name} takes no {spelling!r} here; its flags are {known}")
        if flag in seen:
            raise Refused(f"{spelling} is given twice")
        seen.add(flag)
        end = at + 1
        while end < len(words) and not words[end].startswith("-"):
            end += 1
        values = (*((inline,) if joined else ()), *words[at + 1 : end])
        _check_count(spelling, flag, values)
        for value in values:
            _check_value(spelling, flag, value)
        yield flag, _Argument(tuple(words[at:end]), values)
        at = end


def _check_count(spelling: str, flag: Flag, values: Sequence[str]) -> None:
    least, most = {"one": (1, 1), "some": (1, 100), "at most one": (0, 1), "none": (0, 0)}[flag.takes]
    if not least <= len(values) <= most:
        wanted = "no value" if not most else "one value" if most == 1 else "one value or more"
        raise Refused(
            f"{spelling} takes {wanted}, and was given {len(values)} (a value that begins with -: {spelling}=-x)"
        )


def _check_value(spelling: str, flag: Flag, value: str) -> None:
    if value.startswith("@") or "=@" in value:
        raise Refused(f"{spelling}: a value that begins with @ would be read from a file, which is not available")
    if flag.kind == "name" and not _NAME.fullmatch(value):
        raise Refused(f"{spelling} wants a plain name (letters, digits, hyphens), not {value!r}")
    if flag.kind == "file" and (value.startswith(("/", "~")) or ".." in value.split("/") or "\\" in value):
        raise Refused(f"{spelling} wants a file in the working folder, not {value!r}")
    if spelling == "--query" and len(value) > LONGEST_QUERY:
        raise Refused(f"--query is longer than {LONGEST_QUERY} characters")
