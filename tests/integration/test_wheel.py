"""The wheel holds one top-level package, each file once, and works in a clean environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_each_file_is_there_once_and_nothing_else_is(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"callwright", "callwright-0.1.0.dist-info"}
    assert not [name for name, count in Counter(names).items() if count > 1]
    for room in ("serving", "envs", "training", "scripts", "configs"):
        wanted = {
            f"callwright/{path.relative_to(ROOT)}"
            for path in (ROOT / room).rglob("*")
            if path.suffix in (".py", ".yaml", ".html", ".css", ".js") and "__pycache__" not in path.parts
        }
        assert wanted <= set(names)
    assert "callwright/configs/quickstart.yaml" in names
    assert {"callwright/py.typed", "callwright/constraints.txt"} <= set(names)


def test_a_clean_environment_gets_callwright_alone(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    code = (
        "import pathlib, site, callwright, callwright.envs.trajectory, callwright.configs as configs\n"
        "print(*sorted(p.name for p in pathlib.Path(site.getsitepackages()[0]).iterdir()))\n"
        "print(*sorted(p.stem for p in pathlib.Path(configs.__file__).parent.glob('*.yaml')))"
    )
    done = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    packages, configs = done.stdout.splitlines()
    assert packages == "callwright callwright-0.1.0.dist-info"
    assert "quickstart" in configs.split()
    assert (tmp_path / "venv" / "bin" / "callwright").is_file()
