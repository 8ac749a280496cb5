"""Reasoning effort and prompt cache: what each tag is sent, what is clamped, and the note that says so."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import CacheControlEphemeralParam, OutputConfigParam, ThinkingConfigParam
from google.genai import types as genai
from ollama import ChatResponse
from ollama._types import ChatRequest
from openai.types.chat.completion_create_params import PromptCacheOptions
from openai.types.responses.response_create_params import PromptCacheOptions as ResponsesCacheOptions
from openai.types.shared_params import Reasoning as OpenAIReasoning
from vendor_types import assert_is

from callwright.serving.wires import CapabilityError, LossKind
from callwright.serving.wires.cache import CAPABILITIES as CACHE_CAPABILITIES
from callwright.serving.wires.cache import CacheFormat, PromptCache
from callwright.serving.wires.fields import merged
from callwright.serving.wires.models import model_table
from callwright.serving.wires.reasoning import CAPABILITIES, Effort, Reasoning, ReasoningFormat

pytestmark = pytest.mark.unit


def thinking_config(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": fields}}


def adaptive(effort: str) -> dict[str, Any]:
    return {"output_config": {"effort": effort}, "thinking": {"type": "adaptive"}}


def budgeted(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def options(**fields: str) -> dict[str, Any]:
    return {"prompt_cache_options": {"mode": "implicit", **fields}}


# (tag, model, asked effort) -> the fields, and what the effort became if it changed
PLACED: list[tuple[str, str, str, dict[str, Any], Any]] = [
    ("openai", "", "max", {"reasoning_effort": "max"}, None),
    ("openai", "gpt-5.1", "high", {"reasoning_effort": "high"}, None),
    ("openai", "gpt-5.1-2025-11-13", "max", {"reasoning_effort": "high"}, "high"),
    ("openai", "gpt-5.1", "minimal", {"reasoning_effort": "low"}, "low"),
    ("openai", "o3", "none", {"reasoning_effort": "low"}, "low"),
    ("openai", "gpt-5-pro", "low", {"reasoning_effort": "high"}, "high"),
    ("openai", "gpt-5-mini", "none", {"reasoning_effort": "minimal"}, "minimal"),
    ("openai", "gpt-6.1-sol", "none", {"reasoning_effort": "low"}, "low"),
    ("openai", "gpt-4.1", "high", {}, "nothing"),
    ("responses", "gpt-5.2", "max", {"reasoning": {"effort": "xhigh"}}, "xhigh"),
    ("responses", "openai/gpt-5.6-sol", "max", {"reasoning": {"effort": "max"}}, None),
    ("anthropic", "", "max", adaptive("max"), None),
    ("anthropic", "claude-opus-4-6", "xhigh", adaptive("high"), "high"),
    ("anthropic", "claude-opus-5", "minimal", adaptive("low"), "low"),
    ("anthropic", "claude-opus-5", "none", {"thinking": {"type": "disabled"}}, None),
    ("anthropic", "claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}, None),
    ("anthropic", "claude-opus-5-5", "none", adaptive("low"), "low"),
    ("anthropic", "claude-haiku-4-5-20251001", "low", budgeted(2048), "2048 tokens"),
    ("gemini", "gemini-3-pro-preview", "medium", thinking_config(thinkingLevel="LOW"), "low"),
    ("gemini", "gemini-3.1-pro", "minimal", thinking_config(thinkingLevel="LOW"), "low"),
    ("gemini", "gemini-3.6-flash", "minimal", thinking_config(thinkingLevel="MINIMAL"), None),
    ("gemini", "models/gemini-3.8-flash", "max", thinking_config(thinkingLevel="HIGH"), "high"),
    ("gemini", "", "none", thinking_config(thinkingLevel="MINIMAL"), "minimal"),
    ("gemini", "gemini-2.5-flash", "none", thinking_config(thinkingBudget=0), "0 tokens"),
    ("gemini", "gemini-2.5-flash", "medium", thinking_config(thinkingBudget=8192), "8192 tokens"),
    ("ollama", "qwen3:8b", "none", {"think": False}, None),
    ("ollama", "qwen3:8b", "high", {"think": True}, True),
    ("ollama", "gpt-oss:20b", "max", {"think": "high"}, "high"),
    ("vllm", "Qwen/Qwen3-4B", "none", {"chat_template_kwargs": {"enable_thinking": False}}, None),
    ("vllm", "ibm-granite/granite-4.0", "high", {"chat_template_kwargs": {"thinking": True}}, True),
    ("vllm", "somebody/else", "high", {}, "nothing"),
    ("deepseek", "deepseek-v4-pro", "none", {"thinking": {"type": "disabled"}}, None),
    ("deepseek", "deepseek-v4-pro", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}, None),
    ("none", "", "high", {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("tag", "model", "effort", "fields", "became"), PLACED)
def test_where_an_effort_goes_and_what_it_becomes(
    tag: str, model: str, effort: str, fields: dict[str, Any], became: Any
) -> None:
    payload, losses = Reasoning(Effort(effort)).to(tag, model=model)
    assert payload == fields
    check(tag, payload)
    if tag == "none":
        assert [loss.kind for loss in losses] == [LossKind.REASONING_EFFORT]
    else:
        assert [(loss.kind, loss.before, loss.after) for loss in losses] == (
            [] if became is None else [(LossKind.REASONING_EFFORT, effort, became)]
        )
        assert all(str(loss.before) in str(loss) and str(loss.after) in str(loss) for loss in losses)


def check(tag: str, payload: dict[str, Any]) -> None:
    """The vendor's types take it."""
    if tag == "responses" and payload:
        assert_is(payload["reasoning"], OpenAIReasoning)
    if tag == "anthropic":
        for key, kind in (("output_config", OutputConfigParam), ("thinking", ThinkingConfigParam)):
            if key in payload:
                assert_is(payload[key], kind)
    if tag == "gemini" and payload:
        genai.ThinkingConfig.model_validate(payload["generationConfig"]["thinkingConfig"])
    if tag == "ollama":
        assert ChatResponse
        assert ChatRequest.model_validate({"model": "m", **payload}).think == payload.get("think")


@pytest.mark.parametrize("tag", ReasoningFormat)
def test_nothing_set_sends_nothing(tag: str) -> None:
    assert Reasoning().to(tag) == ({}, ())
    assert PromptCache().to("none") == ({}, ())


def test_function_tools_and_effort_on_chat_completions() -> None:
    for effort, note in ((Effort.HIGH, "high"), (None, None)):
        payload, (loss,) = Reasoning(effort).to("openai", model="gpt-5.6-sol", tools=True)
        assert payload == {"reasoning_effort": "none"}
        assert (loss.before, loss.after) == (note, "none")
    assert Reasoning().to("openai", model="gpt-5.4", tools=True).payload == {}
    assert Reasoning(Effort.LOW).to("openai", model="gpt-5.4", tools=True).payload == {"reasoning_effort": "none"}
    with pytest.raises(CapabilityError, match="responses"):
        Reasoning().to("openai", model="gpt-6-astra", tools=True)
    assert Reasoning(Effort.HIGH).to("responses", model="gpt-5.6-sol", tools=True).losses == ()


def test_budgets_stay_within_their_bounds_with_a_note() -> None:
    asked = Reasoning(budget=100)
    payload, (loss,) = asked.to("anthropic", model="claude-haiku-4-5", max_tokens=4096)
    assert payload == {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert (loss.kind, loss.before, loss.after) == (LossKind.REASONING_BUDGET, 100, 1024)
    payload, _ = Reasoning(budget=9000).to("anthropic", model="claude-haiku-4-5", max_tokens=4096)
    assert payload["thinking"]["budget_tokens"] == 4095
    assert asked.to("anthropic", model="claude-haiku-4-5", max_tokens=512).payload == {}
    payload, (loss,) = asked.to("anthropic", model="claude-opus-5")
    assert (payload, loss.kind) == ({}, LossKind.REASONING_BUDGET)
    payload, (loss,) = Reasoning(budget=0).to("gemini", model="gemini-2.5-pro")
    assert (payload, loss.after) == (thinking_config(thinkingBudget=128), 128)
    assert Reasoning(budget=-1).to("gemini", model="gemini-2.5-pro") == (thinking_config(thinkingBudget=-1), ())


def test_level_and_budget_never_go_together() -> None:
    both = Reasoning(Effort.HIGH, budget=2000)
    for model, key in (("gemini-3.8-flash", "thinkingLevel"), ("gemini-2.5-flash", "thinkingBudget")):
        payload, losses = both.to("gemini", model=model)
        assert list(payload["generationConfig"]["thinkingConfig"]) == [key]
        assert losses
    assert "budget_tokens" not in str(both.to("anthropic", model="claude-opus-5").payload)


def test_fields_without_a_place_are_noted() -> None:
    asked = Reasoning(Effort.HIGH, budget=2000, summary="auto")
    for tag, can in CAPABILITIES.items():
        kinds = {loss.kind for loss in asked.to(tag).losses}
        assert (LossKind.REASONING_SUMMARY in kinds) is not can.summary
        assert can.budget or LossKind.REASONING_BUDGET in kinds
    assert asked.to("responses").payload == {"reasoning": {"effort": "high", "summary": "auto"}}


def test_a_request_beats_the_engines_default_field_by_field() -> None:
    default = Reasoning(Effort.LOW, summary="auto")
    assert Reasoning(Effort.HIGH).over(default) == Reasoning(Effort.HIGH, summary="auto")
    cache = PromptCache(key="k").over(PromptCache(enable=True, ttl="1h"))
    assert cache == PromptCache(enable=True, ttl="1h", key="k")
    written = Reasoning(Effort.HIGH).to("responses").payload
    assert merged({"model": "m"}, written, {"reasoning": {"effort": "low"}})["reasoning"] == {"effort": "low"}
    assert merged(written, {"reasoning": {"summary": "auto"}})["reasoning"] == {"effort": "high", "summary": "auto"}


CACHED: list[tuple[str, str, PromptCache, dict[str, Any], set[str]]] = [
    ("anthropic", "", PromptCache(True), {"cache_control": {"type": "ephemeral"}}, set()),
    ("anthropic", "", PromptCache(True, "1h"), {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, set()),
    ("anthropic", "", PromptCache(True, "9m"), {"cache_control": {"type": "ephemeral"}}, {"cache.ttl"}),
    ("anthropic", "", PromptCache(key="k"), {}, {"cache.key"}),
    ("openai", "gpt-5.1", PromptCache(key="k"), {"prompt_cache_key": "k"}, set()),
    ("openai", "gpt-5.1", PromptCache(True, "30m", "k"), {"prompt_cache_key": "k"}, {"cache", "cache.ttl"}),
    ("openai", "gpt-5.6-sol", PromptCache(True, "30m"), options(ttl="30m"), set()),
    ("openai", "gpt-5.6-sol", PromptCache(True, "12h"), options(), {"cache.ttl"}),
    ("responses", "gpt-5.6-sol", PromptCache(True, "12h"), options(ttl="12h"), set()),
    ("gemini", "", PromptCache(True, key="k"), {}, {"cache", "cache.key"}),
    ("none", "", PromptCache(True, "5m", "k"), {}, {"cache", "cache.ttl", "cache.key"}),
]  # fmt: skip


@pytest.mark.parametrize(("tag", "model", "asked", "fields", "lost"), CACHED)
def test_where_a_cache_goes(tag: str, model: str, asked: PromptCache, fields: dict[str, Any], lost: set[str]) -> None:
    payload, losses = asked.to(tag, model=model)
    assert payload == fields
    assert {str(loss.kind) for loss in losses} == lost
    if "cache_control" in payload:
        assert_is(payload["cache_control"], CacheControlEphemeralParam)
    if "prompt_cache_options" in payload:
        kind = PromptCacheOptions if tag == "openai" else ResponsesCacheOptions
        assert_is(payload["prompt_cache_options"], kind)


def test_every_tag_says_what_it_can() -> None:
    assert set(CAPABILITIES) == set(ReasoningFormat)
    assert set(CACHE_CAPABILITIES) == set(CacheFormat)


def test_the_table_is_dated_and_its_words_are_ours() -> None:
    table = model_table()
    assert len(table.dated) == len("2026-11-30")
    known = {
        "match", "effort", "chat_tools", "thinking", "off", "forced_choice", "thought_signature", "budget", "switch",
        "cache_options", "later_system",
    }  # fmt: skip
    for row in table.rows:
        assert set(row) <= known
        assert [Effort(level) for level in row.get("effort", ())] == sorted(
            map(Effort, row.get("effort", ())), key=list(Effort).index
        )
    assert table.gates("a-model-that-nobody-knows") == {}
