"""What the gateway does beside a plain round trip: limits, errors, keys, choices, disconnects, forks, many at once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from gateways import FAILURE, Reciter, gateway, metrics
from google import genai
from google.genai import errors as gemini_errors
from google.genai import types as gt

from callwright.envs.traces import read_traces
from callwright.serving.engines.codec import Codec
from callwright.serving.models.tiny import train_tokenizer
from callwright.serving.protocol import DEFAULT_TOOLS, EventType, ToolCall, get_dialect
from callwright.serving.store import EventStore

pytestmark = pytest.mark.integration

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
    for name in ("find", "read")
]
USER: Any = [{"role": "user", "content": "hello"}]
PATHS = {
    "openai": ("/v1/chat/completions", {"model": "m", "messages": USER}),
    "responses": ("/v1/responses", {"model": "m", "input": "hello"}),
    "anthropic": ("/v1/messages", {"model": "m", "max_tokens": 99, "messages": USER}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}),
    "ollama": ("/api/chat", {"model": "m", "messages": USER, "stream": False}),
}


@pytest.fixture(scope="module")
def codecs() -> dict[str, Codec]:
    return {
        name: Codec(train_tokenizer(["hello"], DEFAULT_TOOLS, dialect=name)) for name in ("tags", "execute", "hermes")
    }


@pytest.fixture(scope="module")
def codec(codecs: dict[str, Codec]) -> Codec:
    return codecs["hermes"]


def says(codec: Codec, text: str | Exception, delay: float = 0.0) -> Reciter:
    return Reciter(codec, lambda context: text, delay)


def chat(url: str, **fields: Any) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=fields.pop("api_key", "x"), max_retries=0)
    return client.chat.completions.create(**{"model": "m", "messages": USER, **fields})


def error_of(fmt: str, body: Any) -> str:
    """The message in a vendor's error, whose shape is checked on the way."""
    if fmt == "ollama":
        assert list(body) == ["error"]
        return str(body["error"])
    error = body["error"]
    wanted = {
        "anthropic": {"type", "message"},
        "gemini": {"code", "message", "status"},
    }.get(fmt, {"message", "type", "param", "code"})
    assert set(error) == wanted
    return str(error["message"])


def test_health_and_metrics_and_what_is_not_there(codec: Codec) -> None:
    with gateway(says(codec, "hi"), codec, key="") as url:
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok", "model": "tiny"}
        assert chat(url).choices[0].message.content == "hi"
        counts = metrics(url)
        assert counts['callwright_gateway_requests_total{status="200",wire="openai"}'] == 1
        assert counts['callwright_gateway_tokens_total{kind="output"}'] == len(codec.encode("hi")) + 1
        assert counts["callwright_gateway_in_flight"] == 0
        assert [model.id for model in openai.OpenAI(base_url=f"{url}/v1", api_key="x").models.list()] == ["tiny"]
        for path, status in (("/v1/nothing", 404), ("/v1/messages", 405), ("/v1beta/models/m:fly", 404)):
            method = httpx.post if path.endswith("fly") else httpx.get
            answer = method(f"{url}{path}")
            assert (answer.status_code, "error" in answer.json()) == (status, True)


@pytest.mark.parametrize("fmt", PATHS)
def test_without_the_key_nothing_but_health_is_answered(fmt: str, codec: Codec) -> None:
    path, body = PATHS[fmt]
    with gateway(says(codec, "hi"), codec, key="s3cret") as url:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = httpx.post(url + path, json=body, headers=headers)
            assert answer.status_code == 401
            assert "API key" in error_of(fmt, answer.json())
        own = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(fmt, "authorization")
        right = {own: "s3cret" if own.startswith("x") else "Bearer s3cret"}
        assert httpx.post(url + path, json=body, headers=right).status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/metrics").status_code == httpx.get(f"{url}/v1/models").status_code == 401


@pytest.mark.parametrize("fmt", PATHS)
def test_limits_are_refused_in_the_vendors_shape(fmt: str, codec: Codec) -> None:
    path, body = PATHS[fmt]
    with gateway(says(codec, "hi"), codec, context=200, max_body_kb=8, max_messages=3, max_tokens=120) as url:

        def refused(changed: Any, status: int) -> str:
            content = changed if isinstance(changed, bytes) else json.dumps({**body, **changed}).encode()
            answer = httpx.post(url + path, content=content)
            assert answer.status_code == status, answer.text
            return error_of(fmt, answer.json())

        history, one = next((key, value) for key, value in body.items() if key in ("messages", "input", "contents"))
        one = [{"role": "user", "content": "hello"}] if isinstance(one, str) else one
        assert "at most 3 messages, not 4" in refused({history: one * 4}, 400)
        assert "at most 8192 bytes" in refused(b" " * 9000, 413)
        assert "could not parse" in refused(b"{", 400)
        assert "one message" in refused({history: []}, 400)
        long = json.loads(json.dumps(one).replace("hello", "z" * 400))
        assert "200" in refused({history: long}, 400)
        if fmt != "ollama":  # which cuts what is asked for without a word
            most = {"openai": "max_completion_tokens", "responses": "max_output_tokens"}.get(fmt, "max_tokens")
            over = {"generationConfig": {"maxOutputTokens": 121}} if fmt == "gemini" else {most: 121}
            assert "121 > 120" in refused(over, 400)


@pytest.mark.parametrize("fmt", PATHS)
def test_unknown_fields_are_refused_or_ignored_as_the_vendor_does(fmt: str, codec: Codec) -> None:
    path, body = PATHS[fmt]
    with gateway(says(codec, "hi"), codec) as url:
        answer = httpx.post(url + path, json={**body, "no_such": 1})
        if fmt == "ollama":
            assert answer.status_code == 200
        else:
            assert answer.status_code == 400
            assert "no_such" in error_of(fmt, answer.json())
        # A field that the vendor knows, and that would change the reply, is never dropped.
        own = {"openai": {"n": 2}, "responses": {"previous_response_id": "r"}, "anthropic": {"container": "c"}}
        rest = {"gemini": {"generationConfig": {"candidateCount": 2}}, "ollama": {"logprobs": True}}
        answer = httpx.post(url + path, json={**body, **{**own, **rest}[fmt]})
        assert (answer.status_code, "cannot do that" in error_of(fmt, answer.json())) == (400, True)


def test_the_clients_raise_their_own_errors(codec: Codec) -> None:
    with gateway(says(codec, "hi"), codec, key="k", max_tokens=50) as url:
        with pytest.raises(openai.AuthenticationError):
            chat(url)
        with pytest.raises(openai.BadRequestError) as refused:
            chat(url, api_key="k", extra_body={"no_such": 1})
        assert (refused.value.code, refused.value.param) == ("unknown_parameter", "no_such")
        other = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        with pytest.raises(anthropic.BadRequestError, match="51 > 50"):
            other.messages.create(model="m", max_tokens=51, messages=USER)
        client = genai.Client(api_key="wrong", http_options=gt.HttpOptions(base_url=url))
        with pytest.raises(gemini_errors.ClientError, match="UNAUTHENTICATED"):
            client.models.generate_content(model="m", contents="hello")
        with pytest.raises(ollama.ResponseError, match="API key"):
            ollama.Client(host=url).chat(model="m", messages=USER)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fmt", PATHS)
def test_a_failing_engine_is_an_internal_error_and_keeps_its_cause_to_itself(
    fmt: str, stream: bool, codec: Codec, tmp_path: Path
) -> None:
    path, body = PATHS[fmt]
    if fmt == "gemini":
        path = path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path
    else:
        body = {**body, "stream": stream}
    with gateway(says(codec, FAILURE), codec, record=str(tmp_path)) as url:
        answer = httpx.post(url + path, json=body)
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "failed" in error_of(fmt, answer.json())
    (trace,) = read_traces(tmp_path)
    assert (trace["outcome"], "secret" in trace["cause"]) == ("infra_fault", True)
    assert [event["type"] for event in trace["events"]] == ["user", "error"]


@pytest.mark.parametrize("fmt", PATHS)
def test_a_stream_that_had_begun_ends_with_the_vendors_error(fmt: str, codec: Codec) -> None:
    path, body = PATHS[fmt]
    if fmt == "gemini":
        path = path.replace("generateContent", "streamGenerateContent")  # without alt=sse: one array
    else:
        body = {**body, "stream": True}
    with gateway(Reciter(codec, lambda context: "word " * 9, 0.03, fails_after=12), codec) as url:
        answer = httpx.post(url + path, json=body)
    assert answer.status_code == 200
    assert "secret" not in answer.text
    if fmt == "gemini":
        first, *_, last = answer.json()
        assert first["candidates"][0]["content"]["parts"][0]["text"].startswith("w")
    else:
        lines = [line for line in answer.text.splitlines() if line and not line.startswith("event: ")]
        assert len(lines) > 2
        last = json.loads([line for line in lines if line != "data: [DONE]"][-1].removeprefix("data: "))
    if fmt == "responses":
        assert (last["type"], last["code"]) == ("error", "server_error")
    else:
        assert "failed" in error_of(fmt, last)


def test_stop_sequences_and_limits_end_a_turn(codec: Codec, tmp_path: Path) -> None:
    with gateway(says(codec, "one STOP two"), codec, record=str(tmp_path)) as url:
        for stream in (False, True):
            reply = chat(url, stop=["STOP", "two"], stream=stream)
            text = (
                "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
                if stream
                else reply.choices[0].message.content
            )
            assert text == "one "
        other = anthropic.Anthropic(base_url=url, api_key="k").messages.create(
            model="m", max_tokens=50, messages=USER, stop_sequences=["ST", "OP"]
        )
        assert (other.stop_reason, other.stop_sequence) == ("stop_sequence", "ST")
        cut = chat(url, max_tokens=3)
        assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 3)
        unfinished = chat(url, stop=["two!"])
        assert unfinished.choices[0].message.content == "one STOP two"
    stopped = [trace for trace in read_traces(tmp_path) if "two" not in trace["segments"][1]["text"]]
    assert len(stopped) == 4  # the ids behind a stop sequence were never sampled


def test_choices_decide_what_is_shown_and_what_is_forced(codecs: dict[str, Codec]) -> None:
    for dialect, codec in codecs.items():
        engine = says(codec, get_dialect(dialect).render_call(ToolCall("find", {"q": "x"})))
        with gateway(engine, codec, dialect) as url:
            named: Any = {"type": "function", "function": {"name": "find"}}
            for choice in (named, "required", "auto"):
                reply = chat(url, tools=TOOLS, tool_choice=choice).choices[0]
                assert reply.finish_reason == "tool_calls", dialect
                (call,) = reply.message.tool_calls
                assert (call.function.name, call.function.arguments) == ("find", '{"q":"x"}')
            forced, required, free = (request.grammar for request in engine.requests)
            assert free is None  # a model that may answer is not held to anything
            assert "find" in str(forced)
            assert "read" not in str(forced)
            assert "read" in str(required)
            none = chat(url, tools=TOOLS, tool_choice="none")
            assert not none.choices[0].message.tool_calls
            assert "find (" not in codec.decode(engine.requests[-1].ids)
            for wrong in ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}},):
                with pytest.raises(openai.BadRequestError, match="no tool 'no'"):
                    chat(url, **wrong)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["execute", "hermes"])
def test_one_call_where_parallel_calls_are_switched_off(dialect: str, stream: bool, codecs: dict[str, Codec]) -> None:
    codec = codecs[dialect]
    text = get_dialect(dialect).render_calls([ToolCall("find", {"q": "x"}), ToolCall("read", {"q": "y"})])
    with gateway(says(codec, text), codec, dialect) as url:
        for parallel, count in ((True, 2), (False, 1)):
            reply = chat(url, tools=TOOLS, parallel_tool_calls=parallel, stream=stream)
            if stream:
                calls = [call for chunk in reply if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
            else:
                calls = reply.choices[0].message.tool_calls
            assert [call.function.name for call in calls] == ["find", "read"][:count]


def test_a_refused_call_reaches_the_client_as_far_as_it_can_be_read(codec: Codec) -> None:
    bodies = {
        '{"name":"find","arguments":{"q":1,"type":"x"}}': ("find", '{"q":1,"type":"x"}'),
        '{"name":"nosuch","arguments":{}}': '{"name":"nosuch","arguments":{}}',
        '{"name":"find","arguments":{"q":': '{"name":"find","arguments":{"q":',
    }
    for body, wanted in bodies.items():
        with gateway(says(codec, f"<tool_call>{body}</tool_call>"), codec) as url:
            reply = chat(url, tools=TOOLS).choices[0]
            if isinstance(wanted, str):
                assert (reply.message.content, reply.finish_reason) == (wanted, "stop")
            else:
                (call,) = reply.message.tool_calls
                assert (call.function.name, call.function.arguments) == wanted


@pytest.mark.parametrize("dialect", ["tags", "execute"])
def test_round_trips_in_the_other_dialects_are_spliced(dialect: str, codecs: dict[str, Codec], tmp_path: Path) -> None:
    codec, words = codecs[dialect], get_dialect(dialect)

    def answer(context: str) -> str:
        return words.render_solution("7") if "seven" in context else words.render_call(ToolCall("find", {"q": "x"}))

    engine = Reciter(codec, answer)
    with gateway(engine, codec, dialect, record=str(tmp_path)) as url:
        first = chat(url, tools=TOOLS).choices[0].message
        (call,) = first.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "seven"}
        history = [*USER, first.model_dump(exclude_none=True), result]
        assert chat(url, tools=TOOLS, messages=history).choices[0].message.content == "7"
        third = [*history, {"role": "assistant", "content": "7"}, {"role": "user", "content": "seven more"}]
        assert chat(url, tools=TOOLS, messages=third).choices[0].message.content == "7"
        assert metrics(url)['callwright_gateway_contexts_total{how="spliced"}'] == 2
        # The same said by another client, which served no turn here: rendered to the very same ids.
        other = json.loads(json.dumps(third).replace("hello", "hallo"))
        chat(url, tools=TOOLS, messages=other)
        assert metrics(url)['callwright_gateway_contexts_total{how="rendered"}'] == 1
    spliced, rendered = (codec.decode(request.ids) for request in engine.requests[2:])
    # A sampled turn ends with the end token, which a template may or may not write between messages.
    assert rendered.replace("<|end|>", "") == spliced.replace("hello", "hallo").replace("<|end|>", "")


def test_a_fork_and_an_edited_history_are_conversations_of_their_own(codec: Codec, tmp_path: Path) -> None:
    with gateway(says(codec, "hi"), codec, record=str(tmp_path)) as url:
        chat(url)
        said = [*USER, {"role": "assistant", "content": "hi"}]
        for text in ("a", "b"):
            chat(url, messages=[*said, {"role": "user", "content": text}])
        edited = [*USER, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "c"}]
        chat(url, messages=edited)
        counts = metrics(url)
    how = {
        name: counts[f'callwright_gateway_contexts_total{{how="{name}"}}'] for name in ("new", "spliced", "rendered")
    }
    assert how == {"new": 1, "spliced": 2, "rendered": 1}
    traces = {
        tuple(part["text"] for part in trace["segments"] if part["kind"] == "given"): trace
        for trace in read_traces(tmp_path)
    }
    assert sorted(len(given) for given in traces) == [1, 2, 2]
    first, second = (trace["segments"] for given, trace in traces.items() if len(given) == 2)
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def left(engine: Reciter, count: int) -> None:
    deadline = time.monotonic() + 5
    while engine.cancelled < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.cancelled == count


def test_a_client_that_leaves_frees_its_place(codec: Codec, tmp_path: Path) -> None:
    engine = says(codec, "word " * 500, delay=0.01)
    with gateway(engine, codec, record=str(tmp_path)) as url:
        stream = chat(url, stream=True)
        next(iter(stream))
        stream.close()
        left(engine, 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": USER}, timeout=0.3)
        left(engine, 2)
        deadline = time.monotonic() + 5
        while metrics(url)["callwright_gateway_in_flight"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert metrics(url)["callwright_gateway_in_flight"] == 0
        assert metrics(url)["callwright_gateway_cancelled_total"] == 2
    assert len(engine.released) == 2
    for trace in read_traces(tmp_path):
        assert (trace["outcome"], trace["cause"]) == ("cancelled", "the client left")
        assert [event["type"] for event in trace["events"] if event["type"] != "respond"] == ["user", "cancelled"]


def test_a_server_that_stops_interrupts(codec: Codec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callwright.serving.gateway.server.DRAIN_S", 1)
    engine = says(codec, "word " * 2000, delay=0.01)
    with gateway(engine, codec, record=str(tmp_path)) as url:
        stream = chat(url, stream=True)
        next(iter(stream))
    with pytest.raises(openai.APIError, match="shutting down"):
        list(stream)
    with EventStore(tmp_path / "events.sqlite") as store:
        (conversation,) = store.conversations()
        kinds = [found.event.type for found in store.replay(conversation.name)]
    assert kinds == [EventType.USER, EventType.RESPOND, EventType.INTERRUPT, EventType.CANCELLED]


def test_more_than_may_run_at_once_are_turned_away(codec: Codec) -> None:
    engine = says(codec, "word " * 50, delay=0.01)
    with gateway(engine, codec, at_once=1) as url:
        stream = chat(url, stream=True)
        next(iter(stream))
        with pytest.raises(openai.InternalServerError) as busy:
            chat(url)
        assert (busy.value.status_code, busy.value.code) == (503, "overloaded")
        with pytest.raises(anthropic.APIStatusError) as other:
            anthropic.Anthropic(base_url=url, api_key="k", max_retries=0).messages.create(
                model="m", max_tokens=5, messages=USER
            )
        assert (other.value.status_code, other.value.body["error"]["type"]) == (529, "overloaded_error")
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "word " * 50


async def test_64_streams_at_once_get_their_own_answers(codec: Codec) -> None:
    def answer(context: str) -> str:
        question = context.rpartition("<|user|>")[2].removesuffix("<|assistant|>")
        return f"<think>{question}</think>" + f"{question} " * 20

    engine = Reciter(codec, answer, delay=0.002)
    with gateway(engine, codec) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)

        async def one(number: int) -> str:
            messages: Any = [{"role": "user", "content": f"question {number}"}]
            stream: Any = await client.chat.completions.create(model="m", messages=messages, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        replies = await asyncio.gather(*map(one, range(64)))
        await client.close()
    assert replies == [f"question {number} " * 20 for number in range(64)]


def test_images_and_tools_of_the_vendors_own_are_refused(codec: Codec) -> None:
    with gateway(says(codec, "hi"), codec) as url:
        image: Any = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
        with pytest.raises(openai.BadRequestError, match="text alone"):
            chat(url, messages=[{"role": "user", "content": image}])
        call = {"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        seen = [
            *USER,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": image},
        ]
        with pytest.raises(openai.BadRequestError, match="text alone"):
            chat(url, messages=seen)
        with pytest.raises(anthropic.BadRequestError, match="runs no web_search"):
            anthropic.Anthropic(base_url=url, api_key="k").messages.create(
                model="m", max_tokens=9, messages=USER, tools=[{"type": "web_search_20250305", "name": "web_search"}]
            )
        for changed in ({"tools": [TOOLS[0], TOOLS[0]]}, {"messages": [{"role": "tool", "tool_call_id": "a"}]}):
            with pytest.raises(openai.BadRequestError):
                chat(url, **changed)
