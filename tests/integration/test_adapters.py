"""Each adapter beside the real package, in the environment that ``make adapters`` makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".adapters" / "bin" / "python"
SCRIPTS = ROOT / "tests" / "adapters"

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("lm_eval", "lm-eval: 3 of 4"),
        ("inspect", "inspect-ai: 2 of 3, and one error"),
        ("verifiers", "verifiers: both ways"),
    ],
)
def test_an_adapter_meets_its_framework(package: str, says: str, tmp_path: Path) -> None:
    if not (ROOT / ".adapters" / ".ready").is_file():
        pytest.skip("the frameworks are not installed here: make adapters")
    done = subprocess.run(
        [PYTHON, SCRIPTS / f"meet_{package}.py", tmp_path], capture_output=True, text=True, timeout=800, cwd=tmp_path
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert says in done.stdout
