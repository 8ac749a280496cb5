"""The parts of the web tool that need no socket: settings, a page's text, a bounded body."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.envs.executors.web.backends import BACKENDS, AnswerError
from callwright.envs.executors.web.body import BodyError, read_body
from callwright.envs.executors.web.page_text import text_of_html
from callwright.training.config import ConfigError, dump_config, load_config
from callwright.training.yaml_values import parse_yaml

pytestmark = pytest.mark.unit

# Settings


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["backend=bing"], "'corpus', 'searxng'"),
        (["backend=searxng"], "needs url, such as http://127.0.0.1:8080"),
        (["backend=retriever"], "needs url, such as http://127.0.0.1:8000"),
        (["backend=searxng", "url=127.0.0.1:8080"], "an address is http"),
        (["backend=searxng", "url=file:///x"], "an address is http"),
        (["backend=searxng", "url=http://me:pw@h"], "no user and no password"),
        (["backend=searxng", "url=http://h", "key_env=A_KEY"], "takes no key"),
        (["backend=brave", "cache=replay"], "cache and cache_file go together"),
        (["backend=brave", "cache_file=x"], "cache and cache_file go together"),
        (["backend=brave", "corpus=x"], "corpus is a local collection"),
        (["backend=brave", "fetch_pages=11"], "less than or equal to 10"),
        (["cache=replay"], "cache is for the services"),
        (["fetch_pages=1"], "fetch_pages is for the services"),
        (["url=http://h"], "url is for the services"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_config("quickstart", [f"executors.web.{word}" for word in words])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["tvly-abcdef", "BSAabcDEF", "0a1b2c3d", "BRAVE API", "$BRAVE_API_KEY"])
def test_a_key_in_the_place_of_its_variable_is_not_shown(key: str, tmp_path: Any) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"executors: {{web: {{backend: brave, key_env: '{key}'}}}}")
    with pytest.raises(ConfigError, match="never the key itself") as caught:
        load_config(file)
    assert key not in str(caught.value)


def test_settings_survive_their_dump(tmp_path: Any) -> None:
    words = ["backend=brave", "key_env=MY_KEY", "cache=read-write", "cache_file=runs/web.sqlite", "fetch_pages=2"]
    config = load_config("quickstart", [f"executors.web.{word}" for word in words])
    file = tmp_path / "c.yaml"
    file.write_text(dump_config(config))
    assert load_config(file) == config
    assert parse_yaml(file.read_text())["executors"]["web"]["cache_file"] == "runs/web.sqlite"
    local = load_config("quickstart", ["executors.web.corpus=wiki.sqlite"])
    assert str(local.executors.web.corpus) == "wiki.sqlite"


def test_without_the_http_library_the_corpus_works_and_a_service_says_what_to_install() -> None:
    code = """
import sys
sys.modules["httpx"] = None  # importing it raises
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.web import WebSettings
from callwright.serving.errors import UserError
Executors(ExecutorSettings(tools=("web",)), documents=[("a", "b")])
try:
    web = WebSettings(backend="searxng", url="http://127.0.0.1:1")
    Executors(ExecutorSettings(tools=("web",), per_tool={"web": web}))
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "executors.web.backend searxng needs httpx: pip install 'callwright[web]'\n", done.stderr


# Answers

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.sampled_from(["search"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["web", "results", "organic", "result", "type", "title", "document", "contents", "url"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@settings(max_examples=200, deadline=None)
@given(answer=JSON)
def test_any_json_is_documents_or_an_answer_error(backend: str, answer: Any) -> None:
    try:
        documents = BACKENDS[backend].read(answer)
    except AnswerError:
        return
    assert all(isinstance(text, str) for each in documents for text in (each.title, each.content, each.url))


# A page's text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a</p><p>b</p>", "a\nb"),
        ("a<br>b<div>c</div>", "a\nb\nc"),
        ("a <b>bold</b> w<i>or</i>d", "a bold word"),
        ("<a href='x>y'>link</a> <img alt = \"a > b\"> z", "link \nz".replace(" \n", "\n")),
        ("<p title=it's>one</p> it's two", "one\nit's two"),
        ("a<script>var x = '<p>no</p>';</script>b", "a\nb"),
        ("a<STYLE>p {}</Style >b", "a\nb"),
        ("<nav>menu</nav><p>text</p><footer>end</footer>", "text"),
        ("<nav>never closed <p>text</p>", "never closed\ntext"),
        ("a<!-- <p>no</p> -->b", "ab"),
        ("a<!-- open <p>no</p>", "a"),
        ("a<script>open <p>no</p>", "a"),
        ("<!DOCTYPE html><?xml x?>a", "a"),
        ("1 < 2 &amp;&amp; 3 &gt; 2 &eacute;&#233;&#xe9;", "1 < 2 && 3 > 2 ééé"),
        ("&#99999999999;" + "&#" + "9" * 5000 + ";x", "\ufffd\ufffdx"),
        ("a\n\n\n  b\t\tc", "a\nb c"),
        ("<p", ""),
        ("<", "<"),
        ("", ""),
    ],
)
def test_what_a_person_reads(page: str, text: str) -> None:
    assert text_of_html(page) == text


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a",
        "<!--",
        "<a '",
        '<a x="',
        "<a x='",
        "<script>",
        "<nav>",
        "</",
        "<nav><svg>",
        "<!",
        "&",
        "&#1",
        " \n",
        "<p x= ",
    ],
)
def test_a_hostile_page_takes_linear_time(piece: str) -> None:
    """A megabyte of it; what is quadratic would take minutes."""
    page = piece * (2**20 // len(piece))
    begin = time.process_time()
    text_of_html(page)
    text_of_html(page + ">'\"-->")
    assert time.process_time() - begin < 30


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="<>/!-ab='\" &#;x\n"))
def test_any_page_has_a_text(page: str) -> None:
    text_of_html(page)


# A body


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("encoding", "wbits"), [("gzip", 31), ("deflate", 15), ("X-GZIP", 31), ("", 0), ("identity", 0)]
)
async def test_a_body_up_to_the_limit_and_no_byte_more(encoding: str, wbits: int, size: int) -> None:
    for length, fits in ((0, True), (499, True), (500, True), (501, False), (50_000, False)):
        data = bytes(i % 251 for i in range(length))
        sent = zlib.compress(data, wbits=wbits) if wbits else data
        if fits:
            assert await read_body(chunks(sent, size), encoding, 500) == data
        else:
            with pytest.raises(BodyError, match="larger than 500 bytes"):
                await read_body(chunks(sent, size), encoding, 500)


async def test_a_packed_stream_that_unpacks_to_nothing_ends_too() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    empty = packer.flush(zlib.Z_FULL_FLUSH)

    async def endless() -> AsyncIterator[bytes]:
        yield empty
        while True:
            yield b"\0\0\0\xff\xff" * 20  # empty stored blocks

    with pytest.raises(BodyError, match="larger than 500 bytes"):
        await read_body(endless(), "gzip", 500)


async def test_a_bomb_in_one_piece_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(64)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(BodyError, match="larger than 1000000 bytes"):
        await read_body(chunks(bomb, len(bomb)), "gzip", 10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20
