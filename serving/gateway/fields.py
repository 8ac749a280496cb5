"""The fields of a request: which each vendor knows, and which of them this server cannot honour.

Invariants: an unknown field is refused or ignored as the vendor does it; a known field that would change the reply and
is not honoured is refused, never dropped. Names are those of the vendors' request types; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.wires.base import WireFormat


@dataclass(frozen=True, slots=True)
class _Rules:
    """``known`` None: every field is. ``only``: what beside nothing, zero and empty may stand in a field."""

    unknown: str = ""  # the vendor's words
    known: frozenset[str] | None = None
    required: Mapping[str, str] = field(default_factory=dict)  # and the words when it is not there
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPENAI = _names(
    """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages
    metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
    web_search_options"""
)
_RESPONSES = _names(
    """access_programs background background_options context_management conversation image include input instructions
    max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream
    stream_options temperature text tool_choice tools top_logprobs top_p truncation user"""
)
_ANTHROPIC = _names(
    """cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier
    speed stop_sequences stream system temperature thinking tool_choice tools top_k top_p user_profile_id
    workspace_id"""
)
_GEMINI = _names(
    """contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels store
    serviceTier model modelArmorConfig"""
)
_GENERATION = _names(
    """modelSelectionConfig responseJsonSchema audioTimestamp candidateCount enableAffectiveDialog frequencyPenalty
    imageConfig logprobs maxOutputTokens mediaResolution presencePenalty responseLogprobs responseMimeType
    responseModalities responseSchema routingConfig seed speechConfig stopSequences temperature thinkingConfig topK topP
    enableEnhancedCivicAnswers responseFormat translationConfig audioTranscriptionConfig"""
)
_CANNOT_OPENAI: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("audio", "functions", "function_call", "logit_bias", "logprobs", "top_logprobs"), ()),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "web_search_options"), ()),
    "modalities": (["text"],),
    "n": (1,),
}
_CANNOT_RESPONSES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("background", "context_management", "conversation", "image", "max_tool_calls"), ()),
    **dict.fromkeys(("previous_response_id", "prompt", "top_logprobs"), ()),
    "truncation": ("disabled",),
}
_CANNOT_GENERATION: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("frequencyPenalty", "presencePenalty", "imageConfig", "logprobs", "responseLogprobs"), ()),
    **dict.fromkeys(("responseFormat", "speechConfig"), ()),
    "candidateCount": (1,),
    "responseModalities": (["TEXT"],),
}
_NO_MODEL = "you must provide a model parameter"
_BODY = {
    WireFormat.OPENAI: _Rules(
        "Unrecognized request argument supplied: {}",
        _OPENAI,
        {"model": _NO_MODEL, "messages": "Missing required parameter: 'messages'."},
        _CANNOT_OPENAI,
    ),
    WireFormat.RESPONSES: _Rules(
        "Unknown parameter: '{}'.",
        _RESPONSES,
        {"model": "Missing required parameter: 'model'.", "input": "Missing required parameter: 'input'."},
        _CANNOT_RESPONSES,
    ),
    WireFormat.ANTHROPIC: _Rules(
        "{}: Extra inputs are not permitted",
        _ANTHROPIC,
        {name: f"{name}: Field required" for name in ("model", "messages", "max_tokens")},
        {"container": ()},
    ),
    WireFormat.GEMINI: _Rules(
        'Invalid JSON payload received. Unknown name "{}": Cannot find field.',
        _GEMINI,
        {"contents": "* GenerateContentRequest.contents: contents is not specified\n"},
        {"cachedContent": ()},
    ),
    # Ollama takes no offence at a field that it does not know.
    WireFormat.OLLAMA: _Rules(required={"model": "model is required"}, only={"logprobs": ()}),
}
# Where fields lie deeper: the place, and its own rules.
_WITHIN = {
    WireFormat.GEMINI: {
        "generationConfig": _Rules(
            "Invalid JSON payload received. Unknown name \"{}\" at 'generation_config': Cannot find field.",
            _GENERATION,
            only=_CANNOT_GENERATION,
        )
    },
}


def check_fields(fmt: WireFormat, body: Mapping[str, Any]) -> None:
    """Raises ApiError for a field that is missing, unknown to a strict vendor, or beyond this server."""
    _check(fmt, _BODY[fmt], body, "")
    for place, rules in _WITHIN.get(fmt, {}).items():
        for name, value in body.items():
            if _canonical(fmt, name) == place and isinstance(value, Mapping):
                _check(fmt, rules, value, f"{name}.")


def check_tools(fmt: WireFormat, body: Mapping[str, Any]) -> None:
    """Raises ApiError for a tool that the vendor itself would run: there is none of those here."""
    tools = body.get("tools")
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, Mapping):
            continue
        theirs = {_canonical(fmt, name) for name in tool} - {"functionDeclarations"}
        served = not theirs if fmt is WireFormat.GEMINI else tool.get("type") in (None, "function", "custom")
        if not served:
            kind = tool.get("type") or ", ".join(sorted(theirs))
            message = f"tools[{number}]: this server runs no {kind}; declare a function of your own"
            raise ApiError(Problem.INVALID, message, f"tools[{number}]", "unsupported_parameter")


def _check(fmt: WireFormat, rules: _Rules, body: Mapping[str, Any], within: str) -> None:
    given = {_canonical(fmt, name): (name, value) for name, value in body.items()}
    for name, words in rules.required.items():
        if name not in given or given[name][1] is None:
            raise ApiError(Problem.INVALID, words, name, "missing_required_parameter")
    for known, (name, value) in given.items():
        if rules.known is not None and known not in rules.known:
            raise ApiError(Problem.INVALID, rules.unknown.format(name), within + name, "unknown_parameter")
        if known in rules.only and value and value not in rules.only[known]:
            message = f"{within}{name}: this server cannot do that"
            raise ApiError(Problem.INVALID, message, within + name, "unsupported_parameter")


def _canonical(fmt: WireFormat, name: str) -> str:
    """Gemini reads both spellings of a name."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name) if fmt is WireFormat.GEMINI else name
