"""What --dry-run says on paper is what torch, PEFT and the engine really hold, on a model small enough to try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callwright.scripts.cli import run as command_line
from callwright.serving.models import Loaded, load
from callwright.training import memory
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import load_config, shipped_configs
from callwright.training.config_schema import Config
from callwright.training.layout import layout_of
from callwright.training.memory import Load
from callwright.training.model_shape import Shape, count_parameters, local_folder, read_shape
from callwright.training.yaml_values import parse_yaml

pytestmark = pytest.mark.integration

SHIPPED = WARM_STARTS / "quickstart"
STEP = Load(rows=2, tokens=96, cached_tokens=4 * 64, width=4)


@pytest.fixture(scope="module")
def shape() -> Shape:
    found = read_shape(SHIPPED)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(str(SHIPPED), device="cpu")


def test_parameters_are_counted_without_reading_them(shape: Shape, loaded: Loaded) -> None:
    assert loaded.model.num_parameters() == count_parameters(SHIPPED) == shape.parameters


@pytest.mark.slow
@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("all-linear",)])
def test_adapters_are_counted(shape: Shape, targets: tuple[str, ...]) -> None:
    from peft import LoraConfig, get_peft_model

    modules: Any = "all-linear" if targets == ("all-linear",) else list(targets)
    adapted = get_peft_model(
        load(str(SHIPPED), device="cpu").model, LoraConfig(r=3, target_modules=modules, task_type="CAUSAL_LM")
    )
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert memory.trained_parameters(1, shape, Load(1, 1, 1, 4, rank=3, targets=targets)) == trained
    assert memory.trained_parameters(1, None, Load(1, 1, 1, 4, rank=3, targets=targets)) is None


def test_a_step_holds_what_is_said(shape: Shape) -> None:
    import torch

    model = load(str(SHIPPED), device="cpu").model.train()
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(0, shape.vocabulary, (STEP.rows, STEP.tokens))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    # The norms and rotations of the library keep some copies of their own.
    assert 0.75 < memory.activations(shape, STEP) / sum(kept.values()) < 1.25
    model.lm_head(hidden).float().sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    held = [p.grad.nbytes for p in model.parameters() if p.grad is not None]
    assert memory.gradients(shape.parameters, STEP) == sum(held)
    states = [v.nbytes for state in optimizer.state.values() for v in state.values() if v.ndim]
    assert memory.optimizer(shape.parameters, STEP) == sum(states)
    assert memory.weights(shape.parameters, STEP) == sum(p.nbytes for p in model.parameters())


def test_the_cache_is_what_the_engine_takes(shape: Shape, loaded: Loaded) -> None:
    from callwright.serving.engines.slots import Slots

    slots = Slots(loaded.model.config, 4, 64, loaded.model.device, loaded.model.dtype)
    assert memory.cache(shape, STEP) == slots.memory.nbytes


def test_checkpointing_and_a_reference_change_what_they_should(shape: Shape) -> None:
    less = Load(2, 96, 1, 4, checkpointing=True)
    assert memory.activations(shape, less) < memory.activations(shape, STEP)
    assert memory.weights(10, Load(1, 1, 1, 2, reference=True)) == 40
    assert memory.weights(10, Load(1, 1, 1, 2, reference=True, rank=4)) == 20


def config(*words: str) -> Config:
    return load_config("quickstart", words)


def test_the_numbers_follow_from_the_config() -> None:
    words = ["grpo.steps=5", "grpo.prompts_per_step=6", "grpo.num_generations=4", "grpo.micro_batch=8"]
    layout = layout_of(config(*words, "engine.max_batch=2"), "quickstart")
    batches = layout.batches
    assert (batches.groups, batches.rollouts, batches.micro_batch, batches.optimizer_steps) == (6, 24, 8, 10)
    assert (batches.in_flight, batches.waves) == (8, 3)
    assert layout.parameters == layout.trained == 705_408
    assert "key/value cache" in layout.sizes
    assert "key/value cache" not in layout_of(config("engine.kind=vllm"), "quickstart").sizes
    external = layout_of(config("executors.external=[code]"), "my.yaml grpo.steps=3")
    assert any("callwright worker code my.yaml grpo.steps=3" in line for line in external.processes)


def test_what_is_not_here_is_unknown_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    path = "nobody/has-this-model"
    assert local_folder(path) is None
    layout = layout_of(config(f"model.path={path}", "warm_start.checkpoint=null"), "c")
    assert set(layout.sizes.values()) == {None}
    assert any("model.parameters" in line for line in layout.lines())
    told = layout_of(config(f"model.path={path}", "warm_start.checkpoint=null", "model.parameters=2"), "c")
    assert (told.parameters, told.sizes["weights"], told.sizes["activations"]) == (2_000_000_000, 8_000_000_000, None)


@pytest.mark.parametrize("cut", [b"", b"\xff" * 8, b"\x05\x00\x00\x00\x00\x00\x00\x00{bad}"])
def test_a_broken_file_is_no_size(tmp_path: Path, cut: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(cut)
    (tmp_path / "config.json").write_text("{")
    assert count_parameters(tmp_path) is None
    assert read_shape(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in shipped_configs() if name != "remote"])
def test_every_shipped_config_has_a_layout(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "layout.json"
    assert command_line(["train", name, "--dry-run", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert Config.model_validate(parse_yaml(printed)) == load_config(name)
    for told in ("# a batch: ", "# memory, together: ", "# process: 1 trainer", "# process: queues: "):
        assert told in printed
    assert json.loads(file.read_text())["batches"]["steps"] == load_config(name).grpo.steps
    assert [path.name for path in tmp_path.iterdir()] == ["layout.json"]
