"""Training under a decoding grammar: the update is about the distribution that the engine sampled from."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from callwright.serving.engines.constraint import Grammars
from callwright.serving.errors import RunError
from callwright.serving.models import Loaded
from callwright.serving.protocol.dialects import get_dialect
from callwright.serving.protocol.grammar import Form
from callwright.serving.protocol.tools import CODE, WEB
from callwright.training.config import load_config
from callwright.training.constrained import TurnGrammar, constrained_logprobs
from callwright.training.run import train

pytestmark = pytest.mark.integration

GRAMMAR = get_dialect("tags").grammar((WEB, CODE), Form())


@pytest.fixture(scope="module")
def turns(tiny: Loaded) -> TurnGrammar:
    return TurnGrammar(tiny.codec, GRAMMAR)


def drawn(tiny: Loaded, opener: str, seed: int) -> list[int]:
    """A turn of up to 40 tokens, each drawn from those that the grammar goes on with behind the opener."""
    grammars, rng = Grammars(tiny.codec), random.Random(seed)
    matcher, ids = grammars.matcher(GRAMMAR), tiny.codec.markers(opener)
    assert matcher.consume_tokens(ids)
    while len(ids) < 40 and not matcher.is_stopped():
        bits = grammars.mask(matcher)
        ids.append(rng.choice([token for token in range(tiny.codec.vocab_size) if bits[token // 8] >> token % 8 & 1]))
        if ids[-1] in tiny.codec.eos:
            break
        matcher.consume_token(ids[-1])
    return ids


def rows(tiny: Loaded, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two turns each, three given tokens between them: ids and which of them count, [rows, tokens]."""
    given = [20, 21, 22]
    parts = [[drawn(tiny, "<web>", 2 * row), drawn(tiny, "<solution>", 2 * row + 1)] for row in range(count)]
    ids = [first + given + second for first, second in parts]
    counts = [[1] * len(first) + [0] * len(given) + [1] * len(second) for first, second in parts]
    width = max(map(len, ids))
    padded = [torch.tensor([row + [0] * (width - len(row)) for row in table]) for table in (ids, counts)]
    return padded[0], padded[1].bool()


def test_the_logprobs_are_those_of_a_softmax_over_the_allowed_tokens(tiny: Loaded, turns: TurnGrammar) -> None:
    ids, counted = rows(tiny, 2)
    prompt = torch.tensor([[30, 31, 32, 33]] * 2)
    context = torch.cat([prompt, ids], 1)
    allowed = turns.allowed(ids, counted)
    with torch.no_grad():
        logprobs, entropies = constrained_logprobs(tiny.model, context, torch.ones_like(context), allowed, 0.7)
    assert bool((logprobs[~counted] == 0).all())

    with torch.no_grad():
        logits = tiny.model(input_ids=context).logits[:, 3:-1]
    narrow = 0
    for row, at in counted.nonzero().tolist():
        bits = allowed.bits[row, at]
        open_ = [token for token in range(logits.shape[-1]) if bits[token // 8] >> token % 8 & 1]
        narrow += len(open_) < 20
        there = (logits[row, at, open_] / 0.7).log_softmax(0)
        assert float(logprobs[row, at]) == pytest.approx(float(there[open_.index(int(ids[row, at]))]), abs=1e-5)
        assert float(entropies[row, at]) == pytest.approx(float(-(there.exp() * there).sum()), abs=1e-4)
    assert narrow > 10  # most of what stands around a call's values is prescribed


def test_nothing_moves_the_logits_of_tokens_that_were_not_allowed(tiny: Loaded, turns: TurnGrammar) -> None:
    ids, counted = rows(tiny, 1)
    allowed = turns.allowed(ids, counted)
    logits = torch.randn(*ids.shape, tiny.codec.vocab_size, requires_grad=True)
    chosen = allowed.narrowed(logits).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    (gradient,) = torch.autograd.grad(chosen[counted].sum(), logits)
    assert bool(gradient.isfinite().all())
    for row, at in counted.nonzero().tolist():
        open_ = torch.tensor([bool(allowed.bits[row, at][t // 8] >> t % 8 & 1) for t in range(logits.shape[-1])])
        assert bool((gradient[row, at, ~open_] == 0).all())
        softmax = logits[row, at, open_].softmax(0)
        want = torch.nn.functional.one_hot(ids[row, at], logits.shape[-1])[open_] - softmax
        assert torch.allclose(gradient[row, at, open_], want, atol=1e-5)


def test_a_token_that_the_grammar_forbids_ends_the_run(tiny: Loaded, turns: TurnGrammar) -> None:
    ids, counted = rows(tiny, 1)
    ids[0, 3] = ids[0, 0]  # a second opener within the call
    with pytest.raises(RunError, match=r"token \d+ was sampled under decoding=grammar, which does not allow it there"):
        turns.allowed(ids, counted)
    counted[0] = False  # a row that counts nowhere is not looked at
    turns.allowed(ids, counted)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["model.lora.r=4", "grpo.trl.num_iterations=2"]], ids=["whole", "adapter"])
def test_a_run_trains_what_it_sampled(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns of a model that knows nothing are held to the grammar, and the trainer's logprobs are the sampler's."""
    monkeypatch.chdir(tmp_path)
    small = ["grpo.steps=2", "grpo.prompts_per_step=4", "grpo.num_generations=4", "eval.n=7", "eval.n_slices=0"]
    fresh = ["model.path=tiny", "warm_start.checkpoint=null", "budgets.turn_tokens=48"]
    run = train(load_config("quickstart", ["decoding=grammar", *small, *fresh, *words]))
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2]
    for row in metrics:
        assert row["sampling/ratio_error_max"] < 1e-5
    assert sum(row["calls_per_rollout"] for row in metrics) > 0
