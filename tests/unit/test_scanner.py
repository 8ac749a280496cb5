"""The scanner: the same tokens for every chunking, text as soon as it is certain, strings respected, memory bounded."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.scanner import Scanner, Token, TokenKind

pytestmark = pytest.mark.unit

THINK = Block("think", Role.THINK, "<think>", "</think>")
CALL = Block("call", Role.CALL, "<call>", "</call>")
CALLER = Block("caller", Role.CALL, "<caller>", "</caller>")
BLOCKS = (THINK, CALL, CALLER)

Joined = list[tuple[TokenKind, str | None, str, int]]


def scan(chunks: list[str], limit: int = 1 << 20) -> Joined:
    """The tokens with neighbouring text joined; where NESTED stands among the text of its block does not count."""
    scanner = Scanner(BLOCKS, limit)
    tokens = [token for chunk in chunks for token in scanner.feed(chunk)] + scanner.finish()
    joined: Joined = []
    nested: Joined = []
    for kind, block, text, offset in tokens:
        name = block.name if block else None
        if kind is TokenKind.NESTED:
            nested.append((kind, name, text, offset))
        elif kind is TokenKind.TEXT and joined and joined[-1][:2] == (kind, name):
            joined[-1] = (kind, name, joined[-1][2] + text, offset)
        else:
            joined.append((kind, name, text, offset))
    return joined + nested


def kinds(text: str, limit: int = 1 << 20) -> list[tuple[str, str]]:
    return [(kind.name, text) for kind, _, text, _ in scan([text], limit)]


def test_blocks_and_text() -> None:
    assert scan(["a<think>b</think>c<call>{}</call>"]) == [
        (TokenKind.TEXT, None, "a", 1),
        (TokenKind.OPEN, "think", "<think>", 1),
        (TokenKind.TEXT, "think", "b", 9),
        (TokenKind.CLOSE, "think", "", 17),
        (TokenKind.TEXT, None, "c", 18),
        (TokenKind.OPEN, "call", "<call>", 18),
        (TokenKind.CLOSE, "call", "{}", 33),
    ]


@pytest.mark.parametrize(
    "body",
    [
        '{"s":"</call>"}',
        '{"s":"\\"</call>"}',
        '{"s":"\\\\\\"</call>","t":"</call>"}',
        '{"</call>":1}',
        '{"s":"<call>"}',
        '{"s":"} ] \\" {"}',
        "<call>[]",
        "not json",
        '{"s":"a\r\n\tb\u2028"}',
        "",
    ],
)
def test_a_call_closes_at_the_first_closer_outside_a_string(body: str) -> None:
    assert kinds(f"<call>{body}</call>") == [("OPEN", "<call>"), ("CLOSE", body)]


def test_an_escaped_backslash_does_not_hide_the_quote() -> None:
    assert kinds('<call>"\\\\"</call>')[1] == ("CLOSE", '"\\\\"')


def test_think_has_no_strings() -> None:
    assert kinds('<think>say "</think>"') == [
        ("OPEN", "<think>"),
        ("TEXT", 'say "'),
        ("CLOSE", ""),
        ("TEXT", '"'),
    ]


@pytest.mark.parametrize("text", ["</call>", "<Think>", "< think>", '<think id="1">', "<thin", "<<", "<", "a < b"])
def test_what_is_no_marker_is_text(text: str) -> None:
    assert kinds(text) == [("TEXT", text)]


def test_a_marker_that_starts_like_another_is_itself() -> None:
    assert [kind for kind, *_ in scan(["<caller>1</caller><call>2</call>"])] == [TokenKind.OPEN, TokenKind.CLOSE] * 2
    assert kinds("<<call>x</call>")[:2] == [("TEXT", "<"), ("OPEN", "<call>")]


def test_a_call_inside_think_is_reported_and_stays_text() -> None:
    assert kinds("<think>a <call>{}</call> b</think>") == [
        ("OPEN", "<think>"),
        ("TEXT", "a <call>{}</call> b"),
        ("CLOSE", ""),
        ("NESTED", "<call>"),
    ]


@pytest.mark.parametrize("body", ['{"a": 1', '{"s":"</call>', '{"s":"\\', "{}</cal", ""])
def test_an_open_call_is_handed_over_at_the_end(body: str) -> None:
    assert kinds(f"<call>{body}") == [("OPEN", "<call>"), ("UNCLOSED", body)]


def test_text_leaves_as_soon_as_it_is_certain() -> None:
    scanner = Scanner(BLOCKS)

    def feed(text: str) -> list[str]:
        return [token.text for token in scanner.feed(text)]

    assert feed("abc") == ["abc"]
    assert feed("d <") == ["d "]
    assert feed("ca") == []
    assert feed("b") == ["<cab"]
    assert feed("<think>x</th") == ["<think>", "x"]
    assert feed("i") == []
    assert feed("s ") == ["</this "]
    assert feed("</think>") == [""]


@pytest.mark.parametrize(("size", "kind"), [(9, TokenKind.CLOSE), (10, TokenKind.CLOSE), (11, TokenKind.OVERFLOW)])
def test_a_call_longer_than_the_limit_overflows_once(size: int, kind: TokenKind) -> None:
    body = '"' + "x" * (size - 2) + '"'
    text = f"<call>{body}</call>after"
    end = 6 + 11 if kind is TokenKind.OVERFLOW else 6 + size + 7
    for chunks in ([text], list(text)):
        tokens = scan(chunks, limit=10)
        assert tokens[1] == (kind, "call", body[:10], end)
        assert tokens[2:] == [(TokenKind.TEXT, None, "after", len(text))]


def test_an_overflowed_call_that_never_closes_gives_no_second_verdict() -> None:
    assert [kind for kind, _ in kinds("<call>" + "x" * 50, limit=10)] == ["OPEN", "OVERFLOW"]


def test_an_open_block_is_bounded() -> None:
    scanner = Scanner(BLOCKS, limit=1000)
    chunk = '{"s":"' + "é😀\\" * 100
    for _ in range(200):
        scanner.feed("<call>" + chunk)
    held = [value for value in vars(scanner).values() if isinstance(value, str)]
    assert sum(map(len, held)) < 20
    assert len(scanner._body.getvalue()) <= 1000


def test_a_marker_starts_with_its_only_angle_bracket() -> None:
    for opener in ("call>", "<a<b>", ""):
        with pytest.raises(ValueError, match="marker"):
            Block("x", Role.CALL, opener, "</x>")


PIECES = [
    "<think>",
    "</think>",
    "<call>",
    "</call>",
    "<caller>",
    "<",
    "</",
    "cal",
    '"',
    "\\",
    "{",
    "é",
    "😀",
    " ",
    "\n",
]


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14), st.randoms(use_true_random=False), st.sampled_from([3, 1 << 20]))
def test_chunking_does_not_matter(pieces: list[str], rng: random.Random, limit: int) -> None:
    text = "".join(pieces)
    whole = scan([text], limit)
    assert scan(list(text), limit) == whole
    cut = rng.randint(0, len(text))
    assert scan([text[:cut], "", text[cut:]], limit) == whole
    shown = [token for token in whole if token[0] in (TokenKind.TEXT, TokenKind.OPEN, TokenKind.CLOSE)]
    assert all(a[3] <= b[3] for a, b in pairwise(shown))


@given(st.text(alphabet="ab<>", max_size=30))
def test_plain_text_comes_through_whole(text: str) -> None:
    scanner = Scanner(BLOCKS)
    tokens: list[Token] = [token for char in text for token in scanner.feed(char)] + scanner.finish()
    assert "".join(token.text for token in tokens) == text
