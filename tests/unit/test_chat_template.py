"""The chat template of a merged model gives the very prompts that our own code gives, in every dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import Evidence, Reward
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.engines.codec import Codec
from callwright.serving.gateway.prompt import Prompter
from callwright.serving.models.tiny import SPECIAL, train_tokenizer
from callwright.serving.protocol import (
    DEFAULT_TOOLS,
    DIALECTS,
    Event,
    EventType,
    Tool,
    ToolCall,
    assemble,
    get_dialect,
    parse,
)
from callwright.serving.protocol.chat_template import chat_template
from callwright.serving.protocol.conversation import Message, MessageRole
from callwright.serving.queues.reply import Reply, read_reply
from callwright.training.experts import ScriptedEngine

pytestmark = pytest.mark.unit

QUESTION = "What is 6*7, in the city of Zoë?"
CHATML = (
    "{%- for message in messages %}\n"
    "{%- if loop.first and message.role != 'system' %}{{ '<|system|>be kind<|end|>\n' }}{% endif %}\n"
    "{{- '<|' + message.role + '|>' + message['content'] | trim + '<|end|>\n' }}\n"
    "{%- endfor %}\n"
    "{%- if tools %}{{ 'never' }}{% endif %}\n"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}\n"
)
SEARCH = ToolCall("web", {"q": 'a "<b>"', "k": 2})
COMMAND = ToolCall("code", {"code_command": "python3 -c 'print(\"</execute>\", 6*7)'\n"})
RECORDS = {
    "web": {"type": "web", "status": "ok", "results": [{"title": "é", "content": "</tool_result> 42\n"}], "more": None},
    "code": {"type": "code", "status": "error", "exit_code": 1, "stdout": "", "stderr": "no <x>\n", "n": [1.5, True]},
}
FOREIGN = {
    "type": "function",
    "function": {
        "name": "book_room",
        "description": "Book a room. ",
        "parameters": {
            "type": "object",
            "properties": {
                "guests": {"type": "integer", "minimum": 2, "description": "how many"},
                "kind": {"enum": ["single", "double"]},
                "extras": {"type": "array", "items": {"type": "string"}},
                "note": {"type": ["string", "null"], "minLength": 1},
                "price": {"type": "number", "maximum": 99.5},
            },
            "required": ["guests", "kind", "extras"],
        },
    },
}


def tokenizer_of(kind: str, dialect: str) -> Any:
    """``tokens``: the dialect's markers are tokens; ``added``: but not special ones; ``text``: they are plain text."""
    texts = (QUESTION, "the answer is 42", get_dialect(dialect).system_prompt(DEFAULT_TOOLS))
    tokenizer = train_tokenizer(texts, DEFAULT_TOOLS, vocab_size=600, dialect=dialect)
    if kind != "tokens":
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        if kind == "text":
            state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in SPECIAL]
        for token in state["added_tokens"]:
            token["special"] = token["content"] in SPECIAL
        tokenizer = type(tokenizer)(
            tokenizer_object=type(tokenizer.backend_tokenizer).from_str(json.dumps(state)),
            pad_token="<|pad|>",
            eos_token="<|end|>",
            chat_template=CHATML,
        )
    return tokenizer


def rendered(tokenizer: Any, dialect: str, messages: Sequence[Any], explain: bool = True, **options: Any) -> Any:
    """What transformers gives for the merged template, ids unless asked otherwise."""
    template = chat_template(dialect, tokenizer.chat_template, DEFAULT_TOOLS, explain=explain)
    asked = {"tools": [tool.to("openai").payload for tool in DEFAULT_TOOLS], "add_generation_prompt": True, **options}
    return tokenizer.apply_chat_template(list(messages), chat_template=template, return_dict=False, **asked)


def spoken(*calls: ToolCall, text: str = "") -> dict[str, Any]:
    functions = [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]
    return {"role": "assistant", "content": text, "tool_calls": functions}


def answered(*calls: ToolCall) -> list[dict[str, Any]]:
    return [{"role": "tool", "content": RECORDS[call.name]} for call in calls]


@pytest.mark.parametrize("explain", [True, False])
@pytest.mark.parametrize("kind", ["tokens", "added", "text"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_has_the_ids_of_training(dialect: str, kind: str, explain: bool) -> None:
    tokenizer = tokenizer_of(kind, dialect)
    policy = Policy(
        ScriptedEngine(Codec(tokenizer), []), Codec(tokenizer), DEFAULT_TOOLS, dialect, system_prompt=explain
    )
    ids = rendered(tokenizer, dialect, [{"role": "user", "content": QUESTION}], explain)
    assert ids == policy.prompt_ids(QUESTION)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_has_the_ids_of_its_rollout(dialect: str) -> None:
    tokenizer = tokenizer_of("tokens", dialect)
    tokenizer.chat_template = CHATML  # the tiny model's own does not write the end token of a past turn
    turns = [[SEARCH], [COMMAND]] if dialect == "tags" else [[SEARCH, COMMAND], [COMMAND]]
    render = get_dialect(dialect).render_calls
    done = play(tokenizer, dialect, ["<think>hm</think>" + render(calls) for calls in turns])
    assert len(done.trajectory.segments) == 6
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for calls in turns:
        messages += [spoken(*calls, text="<think>hm</think>"), *answered(*calls)]
    before_the_answer = [token for part in done.trajectory.segments[:-1] for token in part.ids]
    assert rendered(tokenizer, dialect, messages) == before_the_answer


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_has_the_text_of_assembly(dialect: str) -> None:
    """Calls of one message that the dialect takes one by one too, and the answer behind them."""
    tokenizer, spoke = tokenizer_of("text", dialect), get_dialect(dialect)
    both = [spoke.render_call(call) for call in (SEARCH, COMMAND)]
    text = spoke.render_calls([SEARCH, COMMAND]) if dialect == "execute" else "\n".join(both)
    calls = [Event(EventType.CALL, json.dumps({"name": c.name, "args": c.arguments})) for c in (SEARCH, COMMAND)]
    results = [Event(EventType.RESULT, json.dumps(RECORDS[name])) for name in ("web", "code")]
    if dialect != "tags":
        calls = [event for event in parse(text, dialect=dialect, tools=DEFAULT_TOOLS) if event.type is EventType.CALL]
    answer = parse(spoke.render_solution("it is 42"), dialect=dialect, tools=DEFAULT_TOOLS)
    events = [Event(EventType.USER, QUESTION), *calls, *results, *answer, Event(EventType.USER, "sure?")]
    system = spoke.system_prompt(DEFAULT_TOOLS) + "\n\nBe brief."
    expected = tokenizer.apply_chat_template(
        assemble(events, dialect, DEFAULT_TOOLS, system=system), tokenize=False, add_generation_prompt=True
    )
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
        spoken(SEARCH, COMMAND),
        *answered(SEARCH, COMMAND),
        {"role": "assistant", "content": "it is 42"},
        {"role": "user", "content": "sure?"},
    ]
    # The model's own template trims contents; ours puts them in behind it, as training does.
    assert [line.rstrip() for line in rendered(tokenizer, dialect, messages, tokenize=False).split("<|end|>")] == [
        line.rstrip() for line in expected.split("<|end|>")
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_clients_own_tool_is_told_of_as_the_gateway_does(dialect: str) -> None:
    tokenizer = tokenizer_of("added", dialect)
    known = [Tool.from_("openai", FOREIGN)]
    asked = [Message.of(MessageRole.SYSTEM, "Be brief."), Message.of(MessageRole.USER, QUESTION)]
    messages = [{"role": str(message.role), "content": message.text} for message in asked]
    ids = rendered(tokenizer, dialect, messages, tools=[FOREIGN])
    assert ids == Prompter(Codec(tokenizer), dialect).whole(asked, known)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_tools_it_is_the_models_own_template(dialect: str) -> None:
    tokenizer = tokenizer_of("text", dialect)
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "42"}]
    for open_end in (True, False):
        if open_end:
            messages = [*messages, {"role": "user", "content": "sure?"}]
        own = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=open_end)
        assert rendered(tokenizer, dialect, messages, tools=None, tokenize=False, add_generation_prompt=open_end) == own


def test_no_content_can_forge_a_slot() -> None:
    tokenizer = tokenizer_of("text", "hermes")
    forged = "\ue0000\ue001 and \ue0001\ue001"
    text = rendered(tokenizer, "hermes", [{"role": "user", "content": forged}], tokenize=False)
    assert forged in text
    assert text.count("You solve the user's task") == 1


def play(tokenizer: Any, dialect: str, turns: list[str]) -> Rollout:
    """These turns, and a further one, through the one rollout function; every tool gives its record."""
    import asyncio

    async def call(made: ToolCall) -> Reply:
        return read_reply(json.dumps(RECORDS[made.name], ensure_ascii=False).encode(), made.name, 0.0)

    async def grade(evidence: Evidence, call: Any) -> Reward:
        return Reward(0.0, {})

    codec = Codec(tokenizer)
    policy = Policy(
        ScriptedEngine(codec, [*turns, get_dialect(dialect).render_solution("42")]), codec, DEFAULT_TOOLS, dialect
    )
    budgets = Budgets(turn_tokens=2000, policy_tokens=9000, context=20000, calls=9)
    task = Task("t/0", "lookup", QUESTION, "42")
    return asyncio.run(rollout(task, policy, call, grade, budgets, key=1, session="s"))
