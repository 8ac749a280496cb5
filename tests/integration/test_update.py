"""The packed forward pass beside TRL's own: the same gradients, whatever the loss, and never the logits of a batch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, MixtralConfig, Qwen3Config
from trl import GRPOConfig, GRPOTrainer

from callwright.serving.models import load
from callwright.training.trainer import ToolGRPOTrainer
from callwright.training.update import logprobs
from callwright.training.update.attention import NAME
from callwright.training.update.support import install_where_exact

pytestmark = pytest.mark.integration

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
GROUP, GROUPS = 4, 3
RATIOS = (0.5, 2.0)
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Rows:
    """A rollout function: groups whose prompts and rows differ in length, with tool output; one row counts nowhere."""

    rows: Sequence[tuple[list[int], list[int], list[int], float]]

    @classmethod
    def drawn(cls) -> Rows:
        rng = random.Random(3)
        rows = []
        for group in range(GROUPS):
            prompt = [rng.randrange(20, 300) for _ in range(5 + 4 * group)]
            for row in range(GROUP):
                mask = [1] * rng.randrange(2, 9) + [0] * rng.randrange(6) + [1] * rng.randrange(1, 20)
                mask = [0] * len(mask) if (group, row) == (1, 2) else mask
                ids = [rng.randrange(20, 300) for _ in mask]
                rows.append((prompt, ids, mask, float(rng.random() < 0.5) + 0.1 * row))
        return cls(rows)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        prompt_ids, completion_ids, mask, reward = (list(column) for column in zip(*self.rows, strict=True))
        logprobs = [[0.0] * len(ids) for ids in completion_ids]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": logprobs,
            "env_mask": mask,
            "reward": reward,
        }


def reward_column(reward: Sequence[float], **_: Any) -> list[float]:
    return list(reward)


def build(ours: bool, saved: Path, folder: Path, dtype: str = "float32", **config: Any) -> Any:
    loaded = load(str(saved), device="cpu", dtype=dtype)
    lora = config.pop("lora", None)
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": GROUP * GROUPS,
        "num_generations": GROUP,
        "max_completion_length": 64,
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": [],
        **config,
    }
    common: dict[str, Any] = {
        "model": loaded.model,
        "args": GRPOConfig(**settings),
        "processing_class": loaded.tokenizer,
        "reward_funcs": reward_column,
        "train_dataset": Dataset.from_dict({"prompt": [""] * 64}),
        "rollout_func": Rows.drawn(),
        "peft_config": lora,
    }
    trainer = ToolGRPOTrainer(**common, checkpoints=folder) if ours else GRPOTrainer(**common)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


@dataclass
class Both:
    """TRL's trainer and ours with the same weights, and one batch each, with the same old logprobs."""

    theirs: Any
    ours: Any

    def __post_init__(self) -> None:
        self.ours.model.load_state_dict(self.theirs.model.state_dict())
        move(self.theirs.model, self.ours.model)
        generation = [{"prompt": ""} for _ in range(GROUP * GROUPS)]
        self.plain, self.packed = (t._generate_and_score_completions(generation) for t in (self.theirs, self.ours))
        self.plain["old_per_token_logps"] = self.packed["old_per_token_logps"] = self._old_logps()
        # TRL counts the masked row among those it divides by; here the two are to be the same.
        self.packed["loss_scale"] = torch.tensor(1.0)

    def _old_logps(self) -> torch.Tensor:
        """Such that the ratios are drawn from between ``RATIOS``, evenly in logarithms."""
        ids, mask = (torch.cat([self.plain[f"prompt_{x}"], self.plain[f"completion_{x}"]], 1) for x in ("ids", "mask"))
        width = self.plain["completion_ids"].shape[1]
        with torch.no_grad():
            now = GRPOTrainer._get_per_token_logps_and_entropies(self.theirs, self.theirs.model, ids, mask, width)[0]
        low, high = map(math.log, RATIOS)
        generator = torch.Generator().manual_seed(1)
        return now.float() - (torch.rand(now.shape, generator=generator) * (high - low) + low)

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(TRL's, ours)."""
        return gradient(self.theirs, self.plain), gradient(self.ours, self.packed)

    def error(self, loss: str, level: str = "token") -> float:
        for trainer in (self.theirs, self.ours):
            trainer.loss_type, trainer.importance_sampling_level = loss, level
        want, got = self.gradients()
        assert want.norm() > 1e-3, "a gradient that is nothing proves nothing"
        return relative_error(got, want)


def move(*models: Any) -> None:
    """The same noise to each: a policy away from its reference, an adapter away from nothing."""
    for model in models:
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 0.02)


def gradient(trainer: Any, inputs: dict[str, Any]) -> torch.Tensor:
    trainer.model.zero_grad()
    trainer._compute_loss(trainer.model, inputs).backward()
    return torch.cat([p.grad.flatten().float() for p in trainer.model.parameters() if p.grad is not None])


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).norm() / want.norm())


@pytest.fixture(scope="module")
def both(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("run")
    return Both(*(build(ours, saved, folder) for ours in (False, True)))


@pytest.mark.parametrize(("loss", "level"), [*((loss, "token") for loss in LOSSES), ("grpo", "sequence")])
def test_the_gradient_is_trls(both: Both, loss: str, level: str) -> None:
    assert both.ours._packs
    assert both.error(loss, level) < TOLERANCE


@pytest.mark.parametrize(
    "config",
    [
        {"beta": 0.1},
        {"entropy_coef": 0.05},
        {"top_entropy_quantile": 0.5, "temperature": 0.7},
        {"beta": 0.1, "lora": LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")},
        {"gradient_checkpointing": True},
    ],
    ids=lambda config: "-".join(config),
)
def test_the_gradient_is_trls_with(config: dict[str, Any], saved: Path, tmp_path: Path) -> None:
    pair = Both(*(build(ours, saved, tmp_path, **config) for ours in (False, True)))
    if "beta" in config:
        counted = (pair.plain["completion_mask"] * pair.plain["tool_mask"]).bool()
        theirs, ours = (inputs["ref_per_token_logps"][counted] for inputs in (pair.plain, pair.packed))
        assert (theirs - ours).abs().max() < 1e-4
    assert pair.error("dapo") < TOLERANCE


def test_in_bfloat16_it_is_no_further_from_the_truth(both: Both, saved: Path, tmp_path: Path) -> None:
    rounded = Both(*(build(ours, saved, tmp_path, dtype="bfloat16") for ours in (False, True)))
    rounded.plain["old_per_token_logps"] = rounded.packed["old_per_token_logps"] = both.plain["old_per_token_logps"]
    both.error("dapo")  # sets the loss type
    for trainer in (rounded.theirs, rounded.ours):
        trainer.loss_type = "dapo"
    truth, (theirs, ours) = both.gradients()[0], rounded.gradients()
    assert relative_error(ours, truth) < 1.2 * relative_error(theirs, truth) + 0.01


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
        return result


def test_the_logits_of_a_batch_are_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(Qwen3Config(head_dim=8, num_key_value_heads=2), vocabulary=4096)
    assert install_where_exact([model], 1.0)
    ids = torch.randint(1, 4096, (6, 40), generator=torch.Generator().manual_seed(5))
    counted = torch.ones(6, 30, dtype=torch.bool)
    full = counted.numel() * 4096
    for tile, held in ((2**14, False), (full, True)):  # the second, so that the first can fail
        monkeypatch.setattr(logprobs, "CPU_TILE", tile)
        with Largest() as seen:
            made, entropies = logprobs.packed_logprobs(model, ids, torch.ones_like(ids), counted)
            (made.sum() + entropies.sum()).backward()
        assert (seen.elements >= full) == held
        assert held or seen.elements < full / 4


def test_only_what_a_counted_token_needs_is_computed(both: Both) -> None:
    computed: list[int] = []
    embedding = both.ours.model.get_input_embeddings()
    handle = embedding.register_forward_pre_hook(lambda module, inputs: computed.append(inputs[0].numel()))
    both.ours._compute_loss(both.ours.model, both.packed)
    handle.remove()
    rows = [row for row in Rows.drawn().rows if any(row[2])]
    prompts = {tuple(row[0]) for row in rows}
    assert computed == [sum(map(len, prompts)) + sum(len(row[1]) - 1 for row in rows)]


FAMILIES = [
    Qwen3Config(head_dim=8, num_key_value_heads=2),
    MistralConfig(sliding_window=None, num_key_value_heads=2),
    MixtralConfig(sliding_window=None, num_key_value_heads=2),
    GPT2Config(),
]


@pytest.fixture(params=FAMILIES, ids=lambda config: config.model_type)
def family(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param)


def random_model(config: Any, vocabulary: int = 200) -> Any:
    sizes = {"vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    for key, value in sizes.items():
        setattr(config, key, value)
    if hasattr(config, "intermediate_size"):
        config.intermediate_size = 64
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5.0)
    return model.eval()


def test_other_families_take_a_layout(family: Any) -> None:
    plain = family.forward
    assert install_where_exact([family], 1.0)
    rng = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 200, (3, 30), generator=rng)
    ids[:2, :12] = ids[0, :12]
    mask = torch.ones_like(ids)
    counted = torch.rand(3, 18, generator=rng) < 0.6
    got, entropies = logprobs.packed_logprobs(family, ids, mask, counted)
    logits = plain(input_ids=ids, attention_mask=mask).logits[:, 11:-1].log_softmax(-1)
    want = logits.gather(-1, ids[:, 12:, None])[..., 0]
    assert torch.allclose(got, want * counted, atol=1e-4)
    assert torch.allclose(entropies, -(logits.exp() * logits).sum(-1) * counted, atol=1e-4)


def test_a_model_that_cannot_be_packed_is_left_alone_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    window = random_model(MistralConfig(sliding_window=16, num_key_value_heads=2))
    capped = random_model(MistralConfig(sliding_window=None, num_key_value_heads=2))
    capped.config.final_logit_softcapping = 5.0
    deaf = random_model(MistralConfig(sliding_window=None, num_key_value_heads=2))
    for layer in deaf.model.layers:
        heard = layer.self_attn.forward
        layer.self_attn.forward = lambda *args, heard=heard, layout=None, **kwargs: heard(*args, **kwargs)
    for model, word in ((window, "whole context"), (capped, "final_logit_softcapping"), (deaf, "packed batch")):
        before = model.forward
        assert not install_where_exact([model], 1.0)
        assert model.forward == before
        assert model.config._attn_implementation == "sdpa" != NAME
        said = capsys.readouterr().err
        assert word in said
        assert said.count("\n") == 1


def test_what_cannot_be_packed_trains_through_trls_path(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callwright.training.update.support.refusal", lambda model: "not today")
    pair = Both(*(build(ours, saved, tmp_path) for ours in (False, True)))
    assert not pair.ours._packs
    assert pair.error("dapo") < TOLERANCE
