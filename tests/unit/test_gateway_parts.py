"""The gateway's parts without a socket: vendors' field names, prompts, what a client gets, the memory of turns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import message_create_params as anthropic_params
from google.genai import types as gt
from openai.types.chat import completion_create_params as openai_params
from openai.types.responses import response_create_params as responses_params

from callwright.scripts.common import config_of_checkpoint
from callwright.scripts.serve import FOREIGN
from callwright.serving.engines.engine import Completion, FinishReason
from callwright.serving.gateway import fields
from callwright.serving.gateway.errors import ApiError
from callwright.serving.gateway.history import History, Turn
from callwright.serving.gateway.intake import read_json
from callwright.serving.gateway.prompt import readable
from callwright.serving.gateway.reading import ClientParser, Pieces, Think
from callwright.serving.gateway.settings import GatewaySettings
from callwright.serving.protocol import Tool, ToolCall, get_dialect, validate
from callwright.serving.protocol.conversation import Message, MessageRole
from callwright.serving.protocol.events import Spent
from callwright.serving.protocol.schema import check
from callwright.serving.wires.base import WireFormat

pytestmark = pytest.mark.unit

FIND = Tool("find", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
USER, REPLY = Message.of(MessageRole.USER, "hello"), Message.of(MessageRole.ASSISTANT, "hi")


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        (fields._OPENAI, openai_params.CompletionCreateParamsBase.__annotations__),
        (fields._RESPONSES, responses_params.ResponseCreateParamsBase.__annotations__),
        (fields._ANTHROPIC, anthropic_params.MessageCreateParamsBase.__annotations__),
        (fields._GENERATION, [field.alias for field in gt.GenerationConfig.model_fields.values()]),
    ],
    ids=["openai", "responses", "anthropic", "gemini"],
)
def test_every_field_that_a_vendors_client_sends_is_known(known: frozenset[str], sent: Any) -> None:
    assert set(sent) - known == set()
    # What servers take and these types have no place for: streaming is two types, sampling is for older models.
    assert known - set(sent) <= {"stream", "temperature", "top_p", "top_k", "imageConfig"}


def test_both_spellings_of_a_gemini_field_are_one() -> None:
    body: dict[str, Any] = {"contents": [1], "generation_config": {"candidate_count": 2}}
    with pytest.raises(ApiError, match="candidate_count: this server cannot"):
        fields.check_fields(WireFormat.GEMINI, body)
    with pytest.raises(ApiError, match="Unknown name"):
        fields.check_fields(WireFormat.GEMINI, {"contents": [1], "generationConfig": {"nope": 1}})


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert read_json(rb'{"a":"\ud83d\ude00"}') == {"a": "😀"}
    for body in (rb'{"a":"\ud83d"}', b"[1]", b"\xff", b"[" * 100_000):
        with pytest.raises(ApiError):
            read_json(body)


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 5}},
        {"a": {"type": "array", "items": {"type": "number"}}, "b": {"type": ["boolean", "null"]}},
        {"a": {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]}, "b": {}},
    ],
)
def test_the_example_that_a_prompt_shows_is_a_valid_call(properties: dict[str, Any]) -> None:
    tool = readable(Tool("t", "", {"type": "object", "properties": properties, "required": list(properties)}))
    assert check(dict(tool.example), tool.input_schema) is None
    assert isinstance(validate(ToolCall("t", tool.example).body(), [tool]), ToolCall)


def pieces(text: str, cuts: int, **wishes: Any) -> tuple[str, list[Any], ClientParser]:
    """What a client gets of a text that comes in so many characters at once: the plain text, and the rest."""
    parser = ClientParser("hermes", [FIND], **wishes)
    reader = Pieces(parser, "hermes", [FIND])
    found: list[Any] = []
    for start in range(0, len(text), cuts):
        found += [piece for event in parser.feed(text[start : start + cuts]) for piece in reader.of(event)]
        if parser.turn_over:
            break
    found += [piece for event in parser.close() for piece in reader.of(event)]
    return "".join(p for p in found if isinstance(p, str)), [p for p in found if not isinstance(p, str)], parser


@pytest.mark.parametrize("cuts", [1, 2, 3, 7, 100])
def test_a_stop_sequence_is_found_in_any_cut(cuts: int) -> None:
    text, _, parser = pieces("abcab abd xyz", cuts, stop=("abd", "yy"))
    assert (text, parser.stopped_by) == ("abcab ", "abd")
    text, _, parser = pieces("abcab ab", cuts, stop=("abd", "yy"))
    assert (text, parser.stopped_by) == ("abcab ab", None)
    text, thoughts, parser = pieces("<think>abd</think>x", cuts, stop=("abd",))
    assert (text, "".join(t.text for t in thoughts if isinstance(t, Think))) == ("x", "abd")


@pytest.mark.parametrize("cuts", [1, 5, 1000])
def test_a_single_call_ends_the_turn(cuts: int) -> None:
    calls = get_dialect("hermes").render_calls([ToolCall("find", {"q": "x"}), ToolCall("find", {"q": "y"})])
    _, found, parser = pieces(f"a{calls}b", cuts, one_call=True)
    assert [call.arguments for call in found] == [{"q": "x"}]
    assert (len(parser.calls), parser.turn_over) == (1, True)


def test_schemas_with_words_unknown_to_us_do_not_stop_a_call() -> None:
    odd = {"type": "object", "properties": {"q": {"type": "strange", "minLength": "x"}, "r": True}}
    parser = ClientParser("hermes", [Tool("find", "", odd)])
    parser.feed('<tool_call>{"name":"find","arguments":{"q":[1],"s":2}}</tool_call>')
    assert [call.arguments for call in parser.calls] == [{"q": [1], "s": 2}]


def turn_of(history: History, before: Turn | None, messages: list[Message]) -> Turn:
    name, number = history.begin(before)
    segments = (*(before.segments if before else ()), (1, 2), Completion((3,), (-0.5,), FinishReason.EOS, 0))
    done = Turn(name, number, segments, REPLY, Spent(2, 1, 0.1))
    history.end(name, done, (), messages)
    return done


def test_a_turn_is_found_by_its_whole_conversation_alone() -> None:
    history = History(9, forget=lambda name: None)
    first = turn_of(history, None, [USER])
    assert history.find((), [USER, REPLY, USER]) == (first, 2)
    assert history.find((), [USER, Message.of(MessageRole.ASSISTANT, " hi\n"), USER]) == (first, 2)
    for tools, messages in (
        ((FIND,), [USER, REPLY, USER]),
        ((), [USER, USER, REPLY, USER]),
        ((), [USER, Message.of(MessageRole.ASSISTANT, "ho"), USER]),
        ((), [USER, REPLY]),
        ((), [USER]),
    ):
        assert history.find(tools, messages) == (None, 0)


def test_two_who_go_on_from_one_turn_are_two_conversations() -> None:
    history = History(9, forget=lambda name: None)
    first = turn_of(history, None, [USER])
    second, _ = history.begin(first)
    third, number = history.begin(first)  # while the second is under way
    assert second == first.conversation
    assert (third != second, number) == (True, 2)


def test_what_is_forgotten_is_let_go_once() -> None:
    gone: list[str] = []
    history = History(2, forget=gone.append)
    turns = [turn_of(history, None, [Message.of(MessageRole.USER, str(n))]) for n in range(4)]
    assert gone == [turn.conversation for turn in turns[:2]]
    name, _ = history.begin(None)
    history.end(name, None, (), [])
    assert gone[2:] == [name]


def test_a_model_from_elsewhere_is_told_of_the_tools_and_one_of_ours_speaks_as_it_was_trained(tmp_path: Path) -> None:
    theirs = config_of_checkpoint("smollm2", ["engine.max_batch=3"], None, FOREIGN)
    assert (theirs.dialect, theirs.system_prompt, theirs.engine.max_batch) == ("hermes", "full", 3)
    shipped = config_of_checkpoint("quickstart", [], None, FOREIGN)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").write_text("extends: quickstart\ndialect: execute\n")
    trained = config_of_checkpoint(str(tmp_path / "checkpoints"), [], None, FOREIGN)
    assert (shipped.dialect, shipped.system_prompt) == ("tags", "none")
    assert (trained.dialect, trained.system_prompt) == ("execute", "none")


def test_every_setting_that_the_docs_name_exists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`serve\.(\w+)", page))
    assert {"record", "host"} <= told <= set(GatewaySettings.model_fields)
