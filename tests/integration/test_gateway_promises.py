"""What a client is promised is kept by a model that knows nothing: strict tools, forced calls, JSON answers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import httpx
import jsonschema
import ollama
import openai
import pytest
import torch
from gateways import Reciter, gateway
from google import genai
from google.genai import types as gt

from callwright.serving.engines.constraint import Grammars
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded
from callwright.serving.protocol import DIALECTS

pytest.importorskip("llguidance", reason="the extras train and serve have llguidance")
pytestmark = pytest.mark.integration

CONTEXT = 900
BOOK = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "minimum": 2, "maximum": 9},
        "where": {"$ref": "#/$defs/Place"},
        "note": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
    },
    "required": ["seats", "where", "note"],
    "additionalProperties": False,
    "$defs": {"Place": {"enum": ["aisle", "window </tool_call>"]}},
}
CANCEL = {
    "type": "object",
    "properties": {"sure": {"const": True}},
    "required": ["sure"],
    "additionalProperties": False,
}
SCHEMAS = {"book": BOOK, "cancel": CANCEL}
VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "<no>"]}, "score": {"type": "integer", "minimum": 0, "maximum": 10}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}
USER: Any = [{"role": "user", "content": "compute 12 plus 30."}]


class Free(Reciter):
    constrains = False


Calls = list[tuple[str, Any]]
"""Name and arguments of each call of a reply."""


def unthinking(loaded: Loaded) -> Any:
    """A hook after which a model opens a tag only where a grammar leaves nothing else, and <think> last of all."""
    codec = loaded.codec
    last = [*codec.markers("<think>"), *codec.encode("h"), *codec.encode("th")]
    angle, think = torch.tensor([*codec.encode("<"), *codec.encode("t")]), torch.tensor(last)
    return lambda module, given, logits: logits.index_fill(-1, angle, -1e3).index_fill(-1, think, -1e4)


@pytest.fixture(scope="module")
def urls(random_models: dict[str, Loaded]) -> Iterator[dict[str, str]]:
    """By dialect: a gateway in front of a random model, but that it never thinks: it would for ever."""
    with ExitStack() as stack:
        found = {}
        for name, loaded in random_models.items():
            model = copy.deepcopy(loaded.model)
            model.lm_head.register_forward_hook(unthinking(loaded))
            engine = TransformersEngine(model, rows=2, context=CONTEXT, grammars=Grammars(loaded.codec))
            stack.callback(engine.close)
            found[name] = stack.enter_context(
                gateway(engine, loaded.codec, name, context=CONTEXT, explain=False, temperature=0.0)
            )
        yield found


def with_openai(url: str, only: str | None) -> Calls:
    functions: Any = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in SCHEMAS.items()
    ]
    choice: Any = {"type": "function", "function": {"name": only}} if only else "required"
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
    reply = client.chat.completions.create(model="m", messages=USER, tools=functions, tool_choice=choice)
    assert reply.choices[0].finish_reason == "tool_calls"
    calls: Any = reply.choices[0].message.tool_calls
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def with_responses(url: str, only: str | None) -> Calls:
    tools: Any = [
        {"type": "function", "name": name, "parameters": schema, "strict": True} for name, schema in SCHEMAS.items()
    ]
    choice: Any = {"type": "function", "name": only} if only else "required"
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
    reply = client.responses.create(model="m", input=USER, tools=tools, tool_choice=choice)
    return [(item.name, json.loads(item.arguments)) for item in reply.output if item.type == "function_call"]


def with_anthropic(url: str, only: str | None) -> Calls:
    tools: Any = [{"name": name, "input_schema": schema, "strict": True} for name, schema in SCHEMAS.items()]
    choice: Any = {"type": "tool", "name": only} if only else {"type": "any"}
    client = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
    reply = client.messages.create(model="m", max_tokens=300, messages=USER, tools=tools, tool_choice=choice)
    assert reply.stop_reason == "tool_use"
    return [(block.name, block.input) for block in reply.content if block.type == "tool_use"]


def with_gemini(url: str, only: str | None) -> Calls:
    tool = gt.Tool(
        function_declarations=[
            gt.FunctionDeclaration(name=name, parameters_json_schema=schema) for name, schema in SCHEMAS.items()
        ]
    )
    calling = gt.FunctionCallingConfig(
        mode=gt.FunctionCallingConfigMode.ANY, allowed_function_names=[only] if only else None
    )
    config = gt.GenerateContentConfig(
        tools=[tool],
        tool_config=gt.ToolConfig(function_calling_config=calling),
        automatic_function_calling=gt.AutomaticFunctionCallingConfig(disable=True),
    )
    client = genai.Client(api_key="x", http_options=gt.HttpOptions(base_url=url))
    reply = client.models.generate_content(model="m", contents=USER[0]["content"], config=config)
    return [(call.name or "", call.args) for call in reply.function_calls or ()]


CLIENTS: dict[str, Callable[[str, str | None], Calls]] = {
    "openai": with_openai,
    "responses": with_responses,
    "anthropic": with_anthropic,
    "gemini": with_gemini,
}


@pytest.mark.parametrize("only", [None, "book", "cancel"])
@pytest.mark.parametrize("fmt", CLIENTS)
def test_a_forced_call_comes_and_is_valid(fmt: str, only: str | None, urls: dict[str, str]) -> None:
    for dialect, url in urls.items():
        calls = CLIENTS[fmt](url, only)
        assert calls, dialect
        assert len(calls) == 1 or only is None
        for name, arguments in calls:
            assert only in (None, name)
            jsonschema.validate(arguments, SCHEMAS[name])


def openai_answer(url: str) -> str:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
    schema: Any = {"type": "json_schema", "json_schema": {"name": "v", "schema": VERDICT, "strict": True}}
    reply = client.chat.completions.create(model="m", messages=USER, response_format=schema)
    return str(reply.choices[0].message.content)


def responses_answer(url: str) -> str:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
    text: Any = {"format": {"type": "json_schema", "name": "v", "schema": VERDICT, "strict": True}}
    return client.responses.create(model="m", input=USER, text=text).output_text


def anthropic_answer(url: str) -> str:
    client = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
    config: Any = {"format": {"type": "json_schema", "schema": VERDICT}}
    reply = client.messages.create(model="m", max_tokens=300, messages=USER, output_config=config)
    return "".join(block.text for block in reply.content if block.type == "text")


def gemini_answer(url: str) -> str:
    client = genai.Client(api_key="x", http_options=gt.HttpOptions(base_url=url))
    config = gt.GenerateContentConfig(response_mime_type="application/json", response_json_schema=VERDICT)
    return client.models.generate_content(model="m", contents=USER[0]["content"], config=config).text or ""


def ollama_answer(url: str) -> str:
    reply = ollama.Client(host=url).chat(model="m", messages=USER, format=VERDICT)
    return reply.message.content or ""


@pytest.mark.parametrize("ask", [openai_answer, responses_answer, anthropic_answer, gemini_answer, ollama_answer])
def test_an_answer_is_json_of_the_schema(ask: Callable[[str], str], urls: dict[str, str]) -> None:
    for dialect, url in urls.items():
        text = ask(url)
        jsonschema.validate(json.loads(text), VERDICT)
        assert "<" not in text, dialect


def test_what_cannot_be_promised_is_refused(urls: dict[str, str]) -> None:
    def refused(url: str, **fields: Any) -> str:
        answer = httpx.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": USER, **fields})
        assert answer.status_code == 400
        return str(answer.json()["error"]["message"])

    def tool(schema: Any, strict: bool = True) -> Any:
        return [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}]

    def form(schema: Any) -> Any:
        return {"type": "json_schema", "json_schema": {"name": "v", "schema": schema}}

    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x+$"}}, "required": ["a"]}
    for dialect, url in urls.items():
        assert "f is strict: this server cannot hold a model to properties.a.pattern" in refused(
            url, tools=tool(pattern)
        )
        assert "response format: this server" in refused(url, response_format=form(pattern)), dialect
        assert "leads to no schema" in refused(
            url, tools=tool({"type": "object", "properties": {"a": {"$ref": "#/x"}}})
        )
        assert "no response format 'poem'" in refused(url, response_format={"type": "poem"})
        assert "cannot be read" in refused(url, response_format=form({"anyOf": 7}))
        empty = {"type": "object", "required": ["a"], "additionalProperties": False}
        assert "no reply can keep" in refused(url, tools=tool(empty))


def test_a_call_that_is_only_forced_is_held_to_what_can_be_told(urls: dict[str, str]) -> None:
    """Words that no grammar knows are the client's to enforce, as ever where a tool is not strict."""
    odd = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 3, "multipleOf": 2}, "b": {"type": "strange"}},
        "required": ["a"],
    }
    functions: Any = [{"type": "function", "function": {"name": "f", "parameters": odd}}]
    for url in urls.values():
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        reply = client.chat.completions.create(
            model="m", messages=USER, tools=functions, tool_choice="required", max_completion_tokens=120
        )
        calls: Any = reply.choices[0].message.tool_calls
        assert all(call.function.name == "f" for call in calls or ())
        assert calls or reply.choices[0].finish_reason == "length"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_engine_that_cannot_keep_a_promise_says_so(dialect: str, random_models: dict[str, Loaded]) -> None:
    codec = random_models[dialect].codec
    engine = Free(codec, lambda context: "hello")
    with gateway(engine, codec, dialect) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        functions: Any = [{"type": "function", "function": {"name": "f", "parameters": BOOK}}]
        with pytest.raises(openai.BadRequestError, match="cannot promise"):
            client.chat.completions.create(model="m", messages=USER, tools=functions, tool_choice="required")
        assert client.chat.completions.create(model="m", messages=USER, tools=functions).choices
    assert len(engine.requests) == 1
