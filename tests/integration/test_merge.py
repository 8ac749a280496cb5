"""A merged checkpoint is a model folder like any other, and says what the checkpoint said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from merged_models import assert_plain_transformers_says_the_same, greedy_rollout
from vllm_servers import INSTALLED, real

from callwright.envs.trajectory import Sampled
from callwright.scripts.cli import run as command_line
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.models import load, load_codec
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import dump_config, load_config
from callwright.training.merge import merge
from callwright.training.model_card import licence_of

pytestmark = pytest.mark.integration

SHIPPED = WARM_STARTS / "quickstart"
SCORE = {"success": 0.25, "interval": [0.2, 0.3], "valid_call_rate": 0.5, "n_scored": 8}


def rollout_of(folder: Path) -> Any:
    loaded = load(str(folder), device="cpu")
    engine = TransformersEngine(loaded.model, rows=2, context=640)
    try:
        return greedy_rollout(engine, loaded.codec)
    finally:
        engine.close()


def run_with(checkpoint: Path, run: Path) -> None:
    """The record of a run around a checkpoint."""
    (run / "config.yaml").write_text(dump_config(load_config("quickstart", ["name=adapted", "model.lora.r=2"])))
    both = {"greedy": SCORE, "sampled": SCORE}
    summary = {"before": both, "after": both, "steps": 3, "updates": 6, "seed": 5}
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "environment.json").write_text(json.dumps({"versions": {"torch": "2.0.of-then"}}))
    assert checkpoint.is_relative_to(run)


def write_adapter(folder: Path) -> None:
    """An adapter on the shipped warm start that changes what the model says."""
    import torch
    from peft import LoraConfig, get_peft_model

    loaded = load(str(SHIPPED), device="cpu")
    config = LoraConfig(r=2, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(loaded.model, config)
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.05)
    adapted.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)


def test_a_merged_model_gives_the_checkpoints_rollout(tmp_path: Path) -> None:
    target = merge(load_config("quickstart", ["model.path=quickstart", f"merge.folder={tmp_path / 'm'}"]))
    before, after = rollout_of(SHIPPED), rollout_of(target)
    assert before.trajectory.ids == after.trajectory.ids
    assert sum(isinstance(part, Sampled) for part in after.trajectory.segments) == 3
    assert_plain_transformers_says_the_same(target, before)
    assert not list(tmp_path.glob(".*"))
    generation = json.loads((target / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [load(str(target), device="cpu").tokenizer.eos_token_id]
    card = (target / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "dialect `tags`" in card


@pytest.mark.slow
def test_an_adapter_is_folded_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = tmp_path / "runs" / "adapted" / "checkpoints" / "step-3"
    write_adapter(checkpoint)
    run_with(checkpoint, tmp_path / "runs" / "adapted")
    assert command_line(["merge", str(checkpoint)]) == 0
    target = Path(capsys.readouterr().out.strip())
    assert target.resolve() == tmp_path / "runs" / "adapted" / "merged" / "step-3"
    assert (target / "model.safetensors").is_file()
    assert not (target / "adapter_config.json").exists()
    adapted = rollout_of(checkpoint)
    assert adapted.trajectory.ids != rollout_of(SHIPPED).trajectory.ids
    assert_plain_transformers_says_the_same(target, adapted)
    card = (target / "README.md").read_text()
    for told in ("| after, greedy | 0.250 | 0.200 to 0.300 | 0.500 | 8 |", "2.0.of-then", "After 3 steps", "r: 2"):
        assert told in card
    assert load_config(target).model.path == "tiny"

    assert command_line(["merge", str(checkpoint)]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed: make vllm")
@pytest.mark.parametrize("adapted", [False, True], ids=["whole weights", "under an adapter"])
def test_vllm_gives_the_same_rollout_of_a_merged_model(adapted: bool, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint" if adapted else SHIPPED
    if adapted:
        write_adapter(checkpoint)
    target = merge(load_config("quickstart", [f"model.path={checkpoint}", f"merge.folder={tmp_path / 'm'}"]))
    with real(str(target), **{"max-model-len": 640}) as server:
        engine = VllmEngine([server.url], in_flight=2)
        try:
            served = greedy_rollout(engine, load_codec(str(target)))
        finally:
            engine.close()
    here = rollout_of(checkpoint)
    assert served.trajectory.ids == here.trajectory.ids
    turns = [part for part in served.trajectory.segments if isinstance(part, Sampled)]
    assert adapted or len(turns) == 3
    assert_plain_transformers_says_the_same(target, served)


def test_what_cannot_be_merged_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for words, told in {
        ("no-such-folder",): "no checkpoint no-such-folder",
        ("quickstart", "engine.kind=remote"): "engine.kind=remote",
        ("quickstart", "merge.folder=file/inside"): "merge.folder=file/inside",
        ("quickstart", "merge.folder=file"): "is there already",
        ("quickstart", "merge.place=x"): "unknown key merge.place",
    }.items():
        assert command_line(["merge", *words]) == 2
        said = capsys.readouterr()
        assert told in said.err
        assert len(said.err.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_licence_is_the_base_cards_own(tmp_path: Path) -> None:
    assert licence_of(str(tmp_path)) is None
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# a model")
    assert licence_of(str(tmp_path)) == "mit"
    assert licence_of("nobody/never-fetched") is None
