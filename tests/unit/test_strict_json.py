"""Strict JSON: what it accepts equals the standard library's value; a refusal has a code and a place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol.strict_json import MAX_DEPTH, MAX_DIGITS, StrictJSONError, decode, locate
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=15)


def careful(text: str) -> Any:
    """The value as the careful reader gives it: enough braces in a string beside it keep the C decoder away."""
    return decode('["' + "{" * (MAX_DEPTH + 1) + '",' + text + "]")[1]


def refusal(text: str) -> tuple[Code, int]:
    with pytest.raises(StrictJSONError) as caught:
        decode(text)
    assert caught.value.message
    return caught.value.code, caught.value.offset


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_is_read_back(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert decode(text) == careful(text) == value


@settings(max_examples=3000, deadline=None)
@given(st.text(alphabet='{}[]",:\\/u0dD8bn1-+.eEtrufalsN \n\té\ud800', max_size=24))
def test_any_text_is_read_as_json_reads_it_or_refused(text: str) -> None:
    try:
        offsets = locate(text)  # the careful reader alone
    except StrictJSONError as error:
        assert refusal(text) == (error.code, error.offset)  # noqa: PT017
        assert 0 <= error.offset <= len(text.encode(errors="surrogatepass"))  # noqa: PT017
    else:
        assert decode(text) == careful(text) == json.loads(text)
        assert text[: offsets[()]].strip() == ""


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        ("", Code.MALFORMED_JSON, 0),
        ("  ", Code.MALFORMED_JSON, 2),
        ("{", Code.MALFORMED_JSON, 1),
        ('{"a":1', Code.MALFORMED_JSON, 6),
        ('{"a":"b', Code.MALFORMED_JSON, 7),
        ('{"a":1,}', Code.MALFORMED_JSON, 7),
        ("[1,]", Code.MALFORMED_JSON, 3),
        ("[1 2]", Code.MALFORMED_JSON, 3),
        ("{'a':1}", Code.MALFORMED_JSON, 1),
        ('{"a" 1}', Code.MALFORMED_JSON, 5),
        ("{a:1}", Code.MALFORMED_JSON, 1),
        ('{"a":1}{"a":2}', Code.MALFORMED_JSON, 7),
        ('Sure: {"a":1}', Code.MALFORMED_JSON, 0),
        ('\ufeff{"a":1}', Code.MALFORMED_JSON, 0),
        ("01", Code.MALFORMED_JSON, 1),
        ("1.", Code.MALFORMED_JSON, 1),
        ("+1", Code.MALFORMED_JSON, 0),
        ("True", Code.MALFORMED_JSON, 0),
        ("\u0661", Code.MALFORMED_JSON, 0),
        ("\u00a01", Code.MALFORMED_JSON, 0),
        ('"a\nb"', Code.MALFORMED_JSON, 2),
        ('"a\\x41"', Code.MALFORMED_JSON, 2),
        ('"\\u00g0"', Code.MALFORMED_JSON, 1),
        ('"\\u 041"', Code.MALFORMED_JSON, 1),
        ('{"a":1,"b":{"c":1,"c":1}}', Code.DUPLICATE_KEY, 18),
        ('{"a":1,"\\u0061":2}', Code.DUPLICATE_KEY, 7),
        ('{"a":NaN}', Code.NON_FINITE_NUMBER, 5),
        ("[Infinity]", Code.NON_FINITE_NUMBER, 1),
        ("-Infinity", Code.NON_FINITE_NUMBER, 0),
        ("[1e999]", Code.NON_FINITE_NUMBER, 1),
        ('"\\ud800"', Code.LONE_SURROGATE, 1),
        ('"x\\udc00\\ud800"', Code.LONE_SURROGATE, 2),
        ('"\\uD83D\\u0041"', Code.LONE_SURROGATE, 1),
        ('{"\\ud83d":1}', Code.LONE_SURROGATE, 2),
        ('"a\ud800"', Code.LONE_SURROGATE, 2),
    ],
)
def test_refusals_name_the_cause_and_its_place(text: str, code: Code, offset: int) -> None:
    assert refusal(text) == (code, offset)


def test_a_surrogate_pair_is_one_character() -> None:
    assert decode('"\\ud83d\\ude00 \\uD83D\\uDE00"') == "😀 😀"


@pytest.mark.parametrize("number", [2**63, -(2**64) - 1, 10**400 + 1, 9007199254740993])
def test_integers_keep_every_digit(number: int) -> None:
    value = decode(f'{{"n":{number}}}')
    assert value == {"n": number}
    assert json.dumps(value["n"]) == str(number)


def test_an_integer_beyond_the_bound_is_refused_not_rounded() -> None:
    assert decode("9" * MAX_DIGITS) == int("9" * MAX_DIGITS)
    assert refusal("[1," + "9" * (MAX_DIGITS + 1) + "]") == (Code.TOO_LARGE, 3)


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_bounded_and_never_recurses(opener: str, closer: str) -> None:
    fits = MAX_DEPTH // (opener.count("[") + opener.count("{"))
    assert decode(opener * fits + "1" + closer * fits)
    assert refusal(opener * (fits + 1) + "1" + closer * (fits + 1))[0] is Code.TOO_LARGE
    assert refusal(opener * 200_000)[0] is Code.TOO_LARGE


def test_many_braces_in_a_string_are_not_nesting() -> None:
    text = "{[" * 1000
    assert decode(json.dumps([text])) == [text]


def test_every_value_is_located() -> None:
    text = ' {"a": [1, {"b": "x"}], "c": null}'
    offsets = locate(text)
    assert {path: text[at] for path, at in offsets.items()} == {
        (): "{",
        ("a",): "[",
        ("a", 0): "1",
        ("a", 1): "{",
        ("a", 1, "b"): '"',
        ("c",): "n",
    }
