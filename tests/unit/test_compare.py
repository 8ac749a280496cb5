"""``callwright compare``: paired differences, the rows that flipped, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callwright.envs.traces import TraceWriter
from callwright.scripts import cli

pytestmark = pytest.mark.unit


def written(folder: Path, rights: dict[str, list[bool]], faults: tuple[str, ...] = ()) -> Path:
    with TraceWriter(folder / "traces", "tools") as traces:
        for key, samples in rights.items():
            for sample, right in enumerate(samples):
                traces.write(
                    {
                        **{"key": key, "family": "nq", "sample": sample, "success": right},
                        "outcome": "infra_fault" if key in faults else "scored",
                    }
                )
    return folder


def compared(tmp_path: Path, a: Path, b: Path) -> dict[str, object]:
    assert cli.run(["compare", str(a), str(b), "--json", str(tmp_path / "out.json")]) == 0
    (found,) = json.loads((tmp_path / "out.json").read_text())["comparisons"]
    assert isinstance(found, dict)
    return found


def test_single_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [f"k{n}" for n in range(20)]
    a = written(tmp_path / "a", {key: [n < 5] for n, key in enumerate(keys)} | {"alone": [True]})
    b = written(tmp_path / "b", {key: [n < 15 and n > 0] for n, key in enumerate(keys)})
    found = compared(tmp_path, a, b)
    assert (found["a"], found["b"], found["difference"]) == (0.25, 0.7, pytest.approx(0.45))
    low, high = found["interval"]  # type: ignore[misc]
    assert 0.15 < low < 0.45 < high < 0.75  # type: ignore[has-type]
    assert (found["n_paired"], found["n_unpaired"]) == (20, 1)
    assert (found["gained"], found["lost"]) == (keys[5:15], ["k0"])
    assert found["mcnemar_p"] == pytest.approx(2 * (1 + 11) / 2**11)
    assert "lost 1: k0" in capsys.readouterr().out


def test_an_evaluation_beside_itself_differs_in_nothing(tmp_path: Path) -> None:
    a = written(tmp_path / "a", {"x": [True], "y": [False]})
    found = compared(tmp_path, a, a)
    assert (found["difference"], found["interval"], found["gained"], found["mcnemar_p"]) == (0, [0, 0], [], 1)


def test_several_samples_are_averaged_and_faults_of_ours_left_out(tmp_path: Path) -> None:
    a = written(tmp_path / "a", {"x": [True, False], "y": [False, False], "z": [True, True]}, faults=("z",))
    b = written(tmp_path / "b", {"x": [True, True], "y": [False, False], "z": [False, False]})
    found = compared(tmp_path, a, b)
    assert (found["a"], found["b"], found["mcnemar_p"]) == (0.25, 0.5, None)
    assert (found["gained"], found["n_unpaired"]) == (["x"], 1)


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = written(tmp_path / "a", {"x": [True]})
    b = written(tmp_path / "b", {"y": [True]})
    for left, right, says in ((a, tmp_path / "none", "no traces"), (a, b, "no task in common"), (tmp_path, b, "a, b")):
        assert cli.run(["compare", str(left), str(right)]) == 2
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1
