"""Every benchmark has the same command line and writes the same shape. Its measurement is a stub here."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("__init__", "common"))
PROMISED = {
    "rollout_vs_trl": {"speedup_at_0s", "speedup_at_500ms", "speedup_heavy_tail", "engine_share"},
    "async_vs_sync": {"updates_speedup", "success_speedup"},
    "update_vs_trl": {"speedup", "memory_ratio", "relative_gradient_error"},
    "parser": {"vs_vllm_hermes", "linearity", "mb_per_s"},
    "validator": {"vs_pydantic", "vs_jsonschema"},
    "gateway": {"overhead_share", "concurrent_streams"},
    "growth": {"time_ratio_2048_vs_8", "memory_bytes_per_rollout", "length_ratio_32k_vs_1k"},
    "brokers": {f"{broker}_{what}" for broker in ("memory", "sqlite") for what in ("round_trip_p50_ms", "calls_per_s")},
}


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # what a benchmark would set, so that it sets nothing here


def load(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def stub(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    common = load("common")
    rows = [common.Spread.of([3.0, 1.0, 2.0]).row("case", "ours", "s")]

    def measure(options: argparse.Namespace) -> object:
        return common.Measured(rows, dict.fromkeys(module.HEADLINE, 1.5), ["a note"])

    monkeypatch.setattr(module, "measure", measure)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_has_the_shape_that_people_script_against(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load(name)
    stub(module, monkeypatch)
    file = tmp_path / "numbers" / "result.json"
    assert module.main(["--json", str(file)]) == 0
    result = json.loads(file.read_text(encoding="utf-8"))
    assert {"name", "command", "machine", "versions", "rows", "headline"} <= set(result)
    assert result["name"] == name
    assert result["command"].startswith(f"python -m benchmarks.{name} --json")
    assert {"cpu", "cores", "python"} <= set(result["machine"])
    assert result["rows"] == [{"case": "case", "what": "ours", "unit": "s", "median": 2, "low": 1, "high": 3, "n": 3}]
    assert PROMISED.get(name, set()) <= set(result["headline"]) == set(module.HEADLINE)
    assert [item.name for item in file.parent.iterdir()] == ["result.json"]
    printed = capsys.readouterr().out
    assert "case  what  unit  median  low  high  n" in printed
    assert all(f"{key}: 1.5" in printed for key in module.HEADLINE)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_file_it_only_prints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(name)
    stub(module, monkeypatch)
    assert module.main([]) == 0


def test_a_broken_promise_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    common = load("common")
    with pytest.raises(ValueError, match="promises"):
        common.run("any", lambda options: common.Measured([], {"other": 1.0}), ["promised"], [])


def test_a_table_lists_every_column() -> None:
    table = load("common").table([{"a": 1, "b": 2.0}, {"a": "long", "c": 12345.6}])
    assert table.splitlines() == ["a     b  c", "1     2", "long     12346"]
