"""What is sent as the policy, and when a transfer is refused, without a server."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.errors import RunError
from callwright.training.weights.disk import write_shards
from callwright.training.weights.frozen import FrozenWatch
from callwright.training.weights.tensors import policy_tensors, trainable_tensors
from callwright.training.weights.transfer import Receipt
from callwright.training.weights.verify import (
    own_logprobs,
    probe_ids,
    refuse_other_answers,
    refuse_other_memory,
    refuse_other_weights,
)

pytestmark = pytest.mark.unit


def small_model(tied: bool = True) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, tie_word_embeddings=tied, **sizes)).eval()


def adapted(model: Any) -> Any:
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, target_modules=["q_proj", "down_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def loaded(model: Any, into: Any) -> Any:
    """A fresh model with exactly what would be sent of ``model``."""
    missing, unexpected = into.load_state_dict(dict(policy_tensors(model)), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    into.tie_weights()
    return into.eval()


@pytest.mark.parametrize("tied", [True, False])
def test_a_plain_model_is_sent_as_it_is(tied: bool) -> None:
    model = small_model(tied)
    names = [name for name, _ in policy_tensors(model)]
    assert names == [name for name, _ in model.named_parameters()]
    assert ("lm_head.weight" in names) is not tied
    ids = probe_ids(64)
    assert own_logprobs(loaded(model, small_model(tied)), ids) == own_logprobs(model, ids)


def test_an_adapter_is_added_and_the_base_stays_as_it_was() -> None:
    base = small_model()
    before = {name: tensor_digest(tensor) for name, tensor in base.named_parameters()}
    model = adapted(copy.deepcopy(base))
    ids = probe_ids(64)
    assert own_logprobs(loaded(model, small_model()), ids) == pytest.approx(own_logprobs(model, ids), abs=1e-5)
    assert own_logprobs(base, ids) != pytest.approx(own_logprobs(model, ids), abs=1e-2)
    kept = {
        name.replace(".base_layer.", "."): tensor_digest(tensor)
        for name, tensor in model.get_base_model().named_parameters()
        if ".lora_" not in name
    }
    assert kept == before


def test_what_the_optimizer_moves_is_the_adapter_alone() -> None:
    assert {name.rsplit(".", 3)[1] for name, _ in trainable_tensors(adapted(small_model()))} == {"lora_A", "lora_B"}


def test_shards_hold_every_tensor_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callwright.training.weights.disk.SHARD_BYTES", 3000)
    model = small_model()
    digests, size = write_shards(tmp_path / "version-1", policy_tensors(model))
    read: dict[str, torch.Tensor] = {}
    files = sorted((tmp_path / "version-1").iterdir())
    for file in files:
        part = load_file(file)
        assert not set(part) & set(read)
        read |= part
    assert len(files) > 2
    assert {name: tensor_digest(tensor) for name, tensor in read.items()} == digests
    assert size == sum(parameter.numel() * 4 for parameter in model.parameters())
    assert [path.name for path in tmp_path.iterdir()] == ["version-1"]


def test_a_write_that_breaks_off_leaves_no_folder(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from list(policy_tensors(small_model()))[:3]
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_shards(tmp_path / "version-1", broken())
    assert not (tmp_path / "version-1").exists()


def test_other_weights_are_refused_with_both_sides_figures() -> None:
    sent = {"a": 1, "b": 2}
    refuse_other_weights("server", 3, sent, {"b": 2, "a": 1})
    for read in ({"a": 1, "b": 3}, {"a": 1}, {"a": 1, "b": 2, "c": 3}):
        with pytest.raises(RunError, match="did not get version 3") as refused:
            refuse_other_weights("server", 3, sent, read)
        assert checksum(sent) in str(refused.value)
        assert checksum(read) in str(refused.value)


def test_memory_is_compared_whole_sharded_and_fused() -> None:
    sent = {"q": 5, "k": 6, "norm": 7}
    packed = {"qk": ["q", "k"]}

    def workers(*held: dict[str, int]) -> list[Any]:
        return [{"held": {name: f"{value:x}" for name, value in one.items()}, "packed": packed} for one in held]

    assert refuse_other_memory("server", 1, sent, workers({"qk": 11, "norm": 7})) == 2
    assert refuse_other_memory("server", 1, sent, workers({"qk": 4, "norm": 7}, {"qk": 7, "norm": 7})) == 2
    for wrong in (workers({"qk": 12, "norm": 7}), workers({"qk": 11, "norm": 7}, {"qk": 11, "norm": 8})):
        with pytest.raises(RunError, match="does not hold it"):
            refuse_other_memory("server", 1, sent, wrong)
    with pytest.raises(RunError, match="nothing of version 1"):
        refuse_other_memory("server", 1, sent, workers({"other": 1}))


def test_other_answers_are_refused() -> None:
    own = [-1.0, -2.0]
    assert refuse_other_answers("server", 1, own, [-1.0001, -2.0], torch.float32) == pytest.approx(5e-5)
    for served in ([-1.0, -2.1], [-1.0, float("nan")]):
        with pytest.raises(RunError, match="does not compute with them"):
            refuse_other_answers("server", 1, own, served, torch.float32)


def test_training_that_reaches_nobody_ends_the_run() -> None:
    model = small_model()
    watch = FrozenWatch(patience=2)

    def sent(version: int) -> Receipt:
        digests = {name: tensor_digest(tensor) for name, tensor in policy_tensors(model)}
        return Receipt(version, checksum(digests), 0, 0.0, 0.0)

    def trained() -> None:
        with torch.no_grad():
            next(model.parameters()).add_(0.01)

    stale = sent(0)
    watch.look(stale, model)
    watch.look(stale, model)  # nothing moved: nothing need change
    trained()
    watch.look(stale, model)
    trained()
    watch.look(sent(2), model)  # it changed after all: the count begins anew
    trained()
    watch.look(sent(2 - 2), model)
    trained()
    frozen = sent(4)
    watch.look(frozen, model)
    trained()
    watch.look(frozen, model)
    trained()
    with pytest.raises(RunError, match="not the trained policy's"):
        watch.look(frozen, model)
