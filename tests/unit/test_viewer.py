"""The viewer's data: the index of a run, token texts, events, and what stands in the one page."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from viewer_runs import HOSTILE, byte_tokenizer, make_run, metrics_line, write_step

from callwright.envs.traces import read_traces
from callwright.serving.errors import UserError
from callwright.training.viewer import export as export_module
from callwright.training.viewer.app import build_app
from callwright.training.viewer.curves import curves
from callwright.training.viewer.export import BYTES, ROLLOUTS, export
from callwright.training.viewer.index import COLUMNS, TraceIndex
from callwright.training.viewer.page import labels, page
from callwright.training.viewer.rollouts import shown_rollout
from callwright.training.viewer.tokens import TokenTexts


@pytest.fixture(scope="module")
def ten_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "big", steps=50, per_step=200)


def embedded(document: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', document, re.DOTALL)
    assert found is not None
    data: dict[str, object] = json.loads(found[1])
    return data


def names(index: TraceIndex) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in index.rows]


def test_the_index_reads_each_rollout_back(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=3, per_step=7)
    index = TraceIndex(run)
    assert index.refresh()
    assert [index.read(*name) for name in names(index)] == list(read_traces(run))
    row = dict(zip(COLUMNS, index.rows[4], strict=True))
    assert (row["step"], row["outcome"], row["reward"], row["rejections"]) == (0, "policy_fault", 0.4, ["extra_key"])
    for absent in (("step-000000", 8), ("step-000000", 0), ("../metrics", 1)):
        with pytest.raises(LookupError):
            index.read(*absent)


def test_the_index_goes_on_where_it_stopped(ten_thousand: Path) -> None:
    index, passes = TraceIndex(ten_thousand), 1
    while not index.refresh(budget_s=0.05):
        passes += 1
    assert passes > 1
    assert len(set(names(index))) == len(index.rows) == 10_000
    assert index.read(*names(index)[-1])["key"] == index.rows[-1][COLUMNS.index("key")]


def test_a_run_that_grows_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=5)
    index = TraceIndex(run)
    index.refresh()
    seen = list(index.rows)
    (run / "traces" / "step-000002.partial").write_text('{"half a li')
    index.refresh()
    assert index.rows == seen
    read: list[str] = []
    parse = export_module.TraceIndex._read_on

    def spy(self: TraceIndex, name: str, *rest: object) -> bool:
        read.append(name)
        return parse(self, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TraceIndex, "_read_on", spy)
    write_step(run, 2, [{"key": "new/0", "family": "new", "outcome": "scored"}])
    index.refresh()
    assert read == ["step-000002"]
    assert index.rows[:-1] == seen
    assert index.generation == 0


def test_a_step_that_is_written_again_begins_a_new_generation(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=5)
    index = TraceIndex(run)
    index.refresh()
    write_step(run, 1, [{"key": "again/0", "family": "new", "outcome": "late"}])
    index.refresh()
    assert index.generation == 1
    assert names(index) == [*(("step-000000", line) for line in range(1, 6)), ("step-000001", 1)]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=1, per_step=1)
    with (run / "traces" / "step-000000.jsonl").open("a") as file:
        file.write('{"schema": 1, "reward": NaN}\n')
    with pytest.raises(UserError, match=r"step-000000.jsonl:2: not a JSON line \(NaN is no number\)"):
        TraceIndex(run).refresh()


def test_each_token_has_its_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=1, per_step=1)
    texts, trace = TokenTexts(run), next(read_traces(run))
    shown = shown_rollout(trace, texts)
    for segment, source in zip(shown["segments"], trace["segments"], strict=True):
        assert "".join(segment["pieces"]) == source["text"]
        assert len(segment["pieces"]) == len(segment["ids"])
    assert shown["segments"][0]["pieces"][6:10] == [" ", "K", "", "ö"]  # an ö is two bytes, whole with the second


def test_half_a_character_stays_at_the_last_token(tmp_path: Path) -> None:
    texts = TokenTexts(make_run(tmp_path / "run", steps=1, per_step=1))
    _, vocab = byte_tokenizer()
    assert texts.pieces([vocab["a"], vocab["Ã"]], "a\ufffd") == ["a", "\ufffd"]
    assert texts.pieces([vocab["a"]], "b") is None  # another run's tokenizer
    assert texts.pieces([9999], "b") is None


def test_without_a_tokenizer_the_text_is_the_segments(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=1, per_step=1, tokens=False)
    texts = TokenTexts(run)
    assert "tokenizer.json" in texts.why_none
    segment = shown_rollout(next(read_traces(run)), texts)["segments"][1]
    assert segment["text"] == '<web>{"q":"Köln"}</web>'
    assert "pieces" not in segment


def test_events_are_checkpoints_faults_groups_without_spread_and_alarms(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=1)
    with (run / "metrics.jsonl").open("a") as file:
        marks = {"alarm/entropy_low": 0.00123456, "stop/entropy_low": 0.00123456}
        file.write(metrics_line(3, loss=float("nan"), zero_variance_share=0.75, **marks) + '{"step": 4, "re')
    found = curves(run)
    assert found["steps"] == [1, 2, 3]  # the line still being written is not read
    assert found["series"]["loss"] == [None, None, None]
    assert [(event["step"], event["kind"], event["text"]) for event in found["events"] if event["step"] > 1] == [
        (2, "fault", "policy_fault: 1 of 5 rollouts"),
        (2, "checkpoint", "step-2 is whole"),
        (3, "fault", "policy_fault: 1 of 5 rollouts"),
        (3, "zero variance", "75% of the groups have no spread and teach nothing"),
        (3, "alarm", "loss is nan"),
        (3, "alarm", "entropy_low (0.00123)"),
        (3, "stop", "the alarm entropy_low ended the run"),
    ]
    assert not [name for name in found["series"] if "entropy" in name]


@pytest.mark.parametrize(
    ("file", "text"), [("metrics.jsonl", "{}\n"), ("metrics.jsonl", "[1]\n"), ("before.json", '{"greedy": 3}')]
)
def test_a_damaged_file_of_numbers_is_named(file: str, text: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=1, per_step=1)
    (run / file).write_text(text)
    with pytest.raises(UserError, match=file):
        curves(run)


def test_ten_thousand_rollouts_are_one_small_file(ten_thousand: Path) -> None:
    document = export([ten_thousand])
    assert len(document.encode()) < BYTES
    (run,) = embedded(document)["runs"]  # type: ignore[misc]
    assert len(run["rows"]) == 10_000
    assert len(run["rollouts"]) == ROLLOUTS
    outcomes = [rollout["outcome"] for rollout in run["rollouts"].values()]
    assert min(outcomes.count("scored"), outcomes.count("policy_fault")) == ROLLOUTS // 2
    assert len({rollout["step"] for rollout in run["rollouts"].values()}) > 40  # from all over the run


def test_long_rollouts_keep_to_the_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=50)
    few = len(export([run]).encode()) // 2
    monkeypatch.setattr(export_module, "BYTES", few)
    document = export([run])
    (only,) = embedded(document)["runs"]  # type: ignore[misc]
    assert len(document.encode()) <= few
    assert 0 < len(only["rollouts"]) < 100
    monkeypatch.setattr(export_module, "BYTES", 10_000)
    with pytest.raises(UserError, match="100 rows"):
        export([run])


def test_two_runs_hold_the_same_tasks(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, steps=10, per_step=100) for name in "ab"]
    first, second = embedded(export(runs))["runs"]  # type: ignore[misc]
    assert len(first["rollouts"]) + len(second["rollouts"]) == ROLLOUTS
    assert first["rollouts"].keys() == second["rollouts"].keys()
    assert labels(runs) == ["a", "b"]
    assert labels([tmp_path / "a", tmp_path / "c" / "a"]) == [str(tmp_path / "a"), str(tmp_path / "c" / "a")]


def test_no_text_of_a_trace_ends_its_element(tmp_path: Path) -> None:
    document = export([make_run(tmp_path / "run", steps=1, per_step=5)])
    assert document.count("</script>") == 2  # the data's and the code's
    assert "<img" not in document
    assert "onerror=" in document  # it is there, as JSON
    (run,) = embedded(document)["runs"]  # type: ignore[misc]
    assert run["rollouts"]["step-000000/1"]["solution"] == HOSTILE
    with pytest.raises(ValueError, match="JSON compliant"):
        page({"runs": float("nan")}, served=False)


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    document = page({}, served=False)
    assert "default-src 'none'" in document
    assert "connect-src 'none'" in document
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)|@import|url\(|https?://(?!www\.w3\.org/)""", document)
    assert "innerHTML" not in document
    assert "unsafe" not in document


def test_the_server_gives_rows_as_they_come_and_a_rollout_when_asked(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, per_step=5)
    with TestClient(build_app([run]), base_url="http://127.0.0.1") as client:
        batch = client.get("/runs/0/rows/0/0").json()
        assert batch["complete"]
        assert len(batch["rows"]) == 10
        assert client.get("/runs/0/rows/0/10").json()["rows"] == []
        write_step(run, 1, [{"key": "again/0", "family": "new", "outcome": "late"}])
        anew = client.get("/runs/0/rows/0/10").json()
        assert (anew["generation"], anew["start"], len(anew["rows"])) == (1, 0, 6)
        assert client.get("/runs/0/rollouts/step-000000/5").json()["rejections"][0]["message"] == HOSTILE
        for absent in ("0/rollouts/step-000000/6", "0/rollouts/..%2Fmetrics/1", "1/rows/0/0", "0/rollouts/nosuch/1"):
            assert client.get(f"/runs/{absent}").status_code == 404
        (run / "traces" / "step-000001.jsonl").write_text("{\n")
        damaged = client.get("/runs/0/rows/1/6")
        assert damaged.status_code == 500
        assert "step-000001.jsonl:1" in damaged.json()["error"]


def test_another_host_name_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=1, per_step=1)
    with TestClient(build_app([run]), base_url="http://rebound.example") as client:
        assert client.get("/runs/0/rows/0/0").status_code == 400
    with TestClient(build_app([run]), base_url="http://localhost") as client:
        assert "frame-ancestors 'none'" in client.get("/").headers["content-security-policy"]


def test_ten_thousand_rollouts_come_in_batches_and_the_first_at_once(ten_thousand: Path) -> None:
    with TestClient(build_app([ten_thousand]), base_url="http://127.0.0.1") as client:
        assert client.get("/").status_code == 200
        first = batch = client.get("/runs/0/rows/0/0").json()
        read = len(first["rows"])
        while not batch["complete"]:
            batch = client.get(f"/runs/0/rows/0/{read}").json()
            read += len(batch["rows"])
        assert read == 10_000
        assert first["rows"]
        assert len(first["rows"]) < read


def test_the_viewer_needs_no_torch(tmp_path: Path) -> None:
    from test_architecture import run_without_heavy

    run = make_run(tmp_path / "run", steps=1, per_step=1)
    out = tmp_path / "page.html"
    run_without_heavy(
        f"""
        from callwright.scripts import cli
        import callwright.training.viewer.app
        assert cli.run(["view", {str(run)!r}, "--html", {str(out)!r}]) == 0
        """
    )
    assert os.path.getsize(out) > 10_000
