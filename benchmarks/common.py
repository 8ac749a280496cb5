"""What every benchmark shares: its command line, the machine it ran on, medians with their spread, a table and a JSON
file.

A benchmark is a module with ``HEADLINE`` (the keys of its headline), ``measure(options) -> Measured`` and
``main(argv)``, which hands both to ``run``. Invariants: a number is a median of the repeats, with the lowest and
highest beside it; the JSON file appears whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Measure = Callable[[argparse.Namespace], "Measured"]

PACKAGES = ("callwright", "numpy", "torch", "transformers", "trl")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a benchmark found. ``notes`` are printed below the table and kept in the file."""

    rows: Sequence[Row]
    headline: Mapping[str, float]
    notes: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the lowest and highest of the values."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def columns(self, name: str) -> dict[str, float]:
        """The three numbers as columns of a row of the benchmark's own shape."""
        return {name: self.median, f"{name}_low": self.low, f"{name}_high": self.high}

    def row(self, case: str, what: str, unit: str) -> Row:
        """A row of its own, where cases and quantities go down the table."""
        numbers = {"median": self.median, "low": self.low, "high": self.high, "n": self.n}
        return {"case": case, "what": what, "unit": unit, **numbers}


def machine() -> dict[str, Any]:
    """The computer, as far as it matters to a timing."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """The installed versions; a package that is not there is left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def progress(line: str) -> None:
    """Say how far it is, on standard error."""
    print(line, file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text, one column a key of any row, in order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_cell(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def run(
    name: str,
    measure: Measure,
    headline: Sequence[str],
    argv: Sequence[str] | None = None,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> int:
    """Parse the command line, measure, print, and write the file. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    if options is not None:
        options(parser)
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_args(given)
    before = machine()
    measured = measure(arguments)
    if set(measured.headline) != set(headline):
        raise ValueError(f"{name} promises the headline {sorted(headline)} and gave {sorted(measured.headline)}")
    print(table(measured.rows))
    print("\n" + "\n".join(f"{key}: {value:.4g}" for key, value in measured.headline.items()))
    for note in measured.notes:
        print(f"note: {note}")
    if arguments.json is not None:
        command = shlex.join(["python", "-m", f"benchmarks.{name}", *given])
        write(arguments.json, name, command, before, measured)
    return 0


def write(path: Path, name: str, command: str, where: Mapping[str, Any], measured: Measured) -> None:
    """Write the result whole: to a file beside it, then renamed."""
    result = {
        "name": name,
        "command": command,
        "machine": where,
        "versions": versions(),
        "rows": list(measured.rows),
        "headline": dict(measured.headline),
        "notes": list(measured.notes),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(path.name + ".part")
    staging.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    staging.replace(path)
