"""What holds in every dialect, whatever the chunks: the same events, at once, in linear time and bounded memory."""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callwright.serving.protocol import DIALECTS, Event, EventType, Parser
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
EXECUTE = '<execute>[{"name":"f","args":{"s":"<\\/think> </execute> \\" é 😀"}}]</execute>'
HERMES = '<tool_call>{"name":"f","arguments":{"s":"</tool_call> \\\\ é"}}</tool_call>'
TAGGED = '<tool_call>\n<function=f>\n<parameter=s>\n"</tool_call> é\n</parameter>\n</function>\n</tool_call>'
TEXTS = {
    "tags": [
        'Hi <think>a é 😀</think> x <code>{"type":"code","code_command":"ls </code>"}</code> tail',
        '<think>n <code>{}</code> m</think><solution>4 <web>{}</web> 2</solution><web>{"type":"web"}</web>',
        '<web>{"type":"web","q":"<</web',
    ],
    "execute": [
        f"Hi <think>a</think> x {EXECUTE} tail",
        f"<think>q {EXECUTE}</think>\n 42 </exec",
        f"a<results>b</results>c{EXECUTE}{EXECUTE}<results>z",
        '<execute>[{"name":"f","args":{"s":"x}]</execute>',
    ],
    "hermes": [
        f"Hi <think>a</think> x {HERMES} and\n{TAGGED} tail <tool_",
        f"<think>q {TAGGED}</think>\n 42 < 43 ",
        f"{HERMES}<tool_call>{{}}</tool_call>{TAGGED}<tool_response>z</tool_response> y",
        "<tool_call><function=f><parameter=s>x</param",
    ],
}
CASES = [(dialect, text) for dialect, texts in TEXTS.items() for text in texts]


def outcome(dialect: str, chunks: Sequence[str]) -> Any:
    """Events with neighbours of one kind joined, and every verdict."""
    parser = Parser(dialect)
    joined: list[tuple[str, str, Any]] = []
    for event in [event for chunk in chunks for event in parser.feed(chunk)] + parser.close():
        kind, payload = str(event.type), event.payload
        if joined and joined[-1][0] == kind and joined[-1][2] == payload and event.content:
            joined[-1] = (kind, joined[-1][1] + event.content, payload)
        else:
            joined.append((kind, event.content, payload))
    calls = [(call.name, call.arguments) for call in parser.calls]
    ends = (parser.solution, parser.incomplete, parser.turn_over, parser.consumed, parser.discarded)
    return joined, calls, parser.rejections, parser.violations, parser.refusals, ends


def splits(text: str, *cuts: int) -> list[str]:
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize(("dialect", "text"), CASES)
def test_every_two_way_split_and_every_character_gives_the_same(dialect: str, text: str) -> None:
    expected = outcome(dialect, [text])
    assert outcome(dialect, list(text)) == expected
    for cut in range(len(text) + 1):
        assert outcome(dialect, splits(text, cut)) == expected, cut


@pytest.mark.parametrize(("dialect", "text"), CASES)
def test_random_splits_give_the_same(dialect: str, text: str) -> None:
    expected, rng = outcome(dialect, [text]), random.Random(text)
    for _ in range(200):
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(2, 9)))
        assert outcome(dialect, splits(text, *cuts)) == expected, cuts


@pytest.fixture(scope="module")
def check() -> Callable[[bytes], None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        checked: Callable[[bytes], None] = importlib.import_module("benchmarks.parser_fuzz").check
        return checked


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.binary(min_size=4, max_size=40))
def test_no_input_breaks_an_invariant(check: Callable[[bytes], None], data: bytes) -> None:
    check(data)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_text_leaves_as_soon_as_it_cannot_be_part_of_a_marker(dialect: str) -> None:
    parser = Parser(dialect)

    def feed(text: str) -> list[tuple[EventType, str]]:
        return [(event.type, event.content) for event in parser.feed(text)]

    assert feed("let me") == [(EventType.RESPOND, "let me")]
    assert feed(" see <") == [(EventType.RESPOND, " see ")]
    assert feed("thi") == []
    assert feed("s") == [(EventType.RESPOND, "<this")]
    assert feed("<think>a</th") == [(EventType.THINK, "a")]
    assert feed("e") == [(EventType.THINK, "</the")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_open_call_is_refused_at_the_bound_and_its_rest_is_not_kept(dialect: str) -> None:
    opener = {"tags": "<code>", "execute": "<execute>", "hermes": "<tool_call>"}[dialect]
    parser = Parser(dialect)
    events: list[Event] = parser.feed(opener)
    for _ in range(40):
        events += parser.feed('"' + "x" * 65_533 + '",')
    events += parser.close()
    assert [event.type for event in events] == [EventType.RESULT]
    assert [item.code for item in parser.rejections] == [Code.TOO_LARGE]
    assert (parser.consumed, parser.turn_over) == (len(opener) + (1 << 20) + 1, True)
    assert len(parser.rejections[0].raw) < 5000
    assert parser._scanner._body.tell() <= 1 << 20


def long_text(kind: str, size: int) -> tuple[str, str]:
    """A dialect, and about ``size`` characters of it."""
    if kind == "text":
        return "hermes", "a < b </tool and more " * (size // 22)
    if kind == "string":
        body = "x</tool_call>\\n" * (size // 15)
        return "hermes", f'<tool_call>{{"name":"f","arguments":{{"s":"{body}"}}}}</tool_call>'
    if kind == "parameter":
        body = 'x "</tool_call>\n' * (size // 16)
        return "hermes", f"<tool_call><function=f><parameter=s>{body}</parameter></function></tool_call>"
    if kind == "nested":  # the place of each is measured in bytes
        return "hermes", "<think>" + "é<tool_call> " * (size // 13)
    return "hermes", f"{HERMES} and\n" * (size // len(f"{HERMES} and\n"))


def seconds(dialect: str, text: str, step: int) -> float:
    chunks = [text[start : start + step] for start in range(0, len(text), step)]
    parser = Parser(dialect)
    begin = time.process_time()
    for chunk in chunks:
        parser.feed(chunk)
    parser.close()
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "string", "parameter", "nested", "calls"])
@pytest.mark.parametrize("step", [1, 16, 1 << 21], ids=["one", "sixteen", "whole"])
def test_time_is_linear(kind: str, step: int) -> None:
    small, large = 1 << 14, (1 << 20) - 200
    ratios = []
    for _ in range(5):  # other programs disturb a clock, but never in our favour: one good reading is enough
        base = min(sum(seconds(*long_text(kind, small), step) for _ in range(8)) / 8 for _ in range(3))
        ratios.append(seconds(*long_text(kind, large), step) / large / (base / small))
        if ratios[-1] <= 1.5:
            return
    pytest.fail(f"the time per character grew by {min(ratios):.2f}")
