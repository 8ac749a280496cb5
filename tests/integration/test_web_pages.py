"""Fetching pages: whose addresses are refused, what is bounded, and what comes of a page."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_servers import Got, Handler, bomb, drips, raw, redirects, says, search, serving, settings

from callwright.envs.executors.web import search_executor
from callwright.envs.executors.web.addresses import is_public, system_resolve
from callwright.envs.executors.web.faults import PageError
from callwright.envs.executors.web.pages import PageFetcher, PageRules
from callwright.envs.executors.web.search import SearchExecutor
from callwright.envs.executors.web.sources import WithPages

pytestmark = pytest.mark.integration

PAGE = "<html><head><title>T</title></head><body><p>Oslo is <b>the</b> capital.</p></body></html>"
TEXT = "Oslo is the capital."
SOON_S = 30.0  # what ends within its bound of half a second has ended by then, on a busy machine too
UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # one that costs nothing to make
HOME = ip_network("127.0.0.1/32")


class Names:
    """A resolver with a script: a name's answers, one a question, the last for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(script) for name, script in answers.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        script = self.answers.get(host)
        if script is None:
            return system_resolve(host, port)
        return script.pop(0) if len(script) > 1 else script[0]


def fetcher(*ports: int, resolve: Any = system_resolve, tls: ssl.SSLContext | None = None, **rules: Any) -> PageFetcher:
    """One for which this machine is public, on these ports alone: for tests only."""
    return PageFetcher(PageRules(ports=frozenset(ports), allowed=(HOME,), **rules), resolve=resolve, tls=tls)


async def fetch(handler: Handler, path: str = "/page", **rules: Any) -> str:
    async with serving(handler) as server:
        return await fetcher(server.port, **rules).text(f"{server.url}{path}", 60.0)


# Addresses


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "0.0.0.0", "0.1.2.3"),
        *("169.254.169.254", "169.254.1.1", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
        *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "192.88.99.1"),
        *("::1", "::", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "fe80::1", "fe80::1%eth0", "fc00::1"),
        *("fd00:ec2::254", "ff02::1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1"),
        *("2001:db8::1", "2001:20::1", "fec0::1", "100::1"),
    ],
)
def test_private_reserved_and_tunnelled_addresses(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "[::1]", "[::ffff:127.0.0.1]"],
)
async def test_this_machine_is_refused_however_it_is_spelled(host: str) -> None:
    async with serving(says(PAGE)) as server:
        rules = PageRules(ports=frozenset((server.port,)))
        with pytest.raises(PageError, match=r"is no public address|does not resolve|no address"):
            await PageFetcher(rules).text(f"http://{host}:{server.port}/", 60.0)
        assert server.connections == 0


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "10.0.0.1"], []])
async def test_a_name_with_any_private_address_is_refused(answers: list[str]) -> None:
    async with serving(says(PAGE)) as server:
        page = fetcher(server.port, resolve=Names(inside_test=[answers]))
        with pytest.raises(PageError, match=r"inside\.test is no public address"):
            await page.text(f"http://inside.test:{server.port}/", 60.0)
        assert server.connections == 0


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address() -> None:
    """The second answer is what a rebinding name server would give to whoever asks again."""
    names = Names(outside_test=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(says(PAGE)) as server:
        text = await fetcher(server.port, resolve=names).text(f"http://outside.test:{server.port}/a?b=c#d", 60.0)
    (got,) = server.requests
    assert (text, names.asked) == (TEXT, ["outside.test"])
    assert (got.target, got.headers["host"]) == ("/a?b=c", f"outside.test:{server.port}")


async def test_after_a_redirect_the_name_is_judged_again() -> None:
    names = Names(outside_test=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(redirects("/again")) as server, serving(says("inside"), host="127.0.0.2"):
        with pytest.raises(PageError, match="no public address"):
            await fetcher(server.port, resolve=names).text(f"http://outside.test:{server.port}/", 60.0)
        assert names.asked == ["outside.test", "outside.test"]
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_private_address_is_refused(status: int) -> None:
    async with serving(says("secrets"), host="127.0.0.2") as inside:
        where = f"http://127.0.0.2:{inside.port}/latest/meta-data"
        async with serving(redirects(where, status)) as server:
            page = fetcher(server.port, inside.port)
            with pytest.raises(PageError, match=r"127\.0\.0\.2 is no public address"):
                await page.text(server.url, 60.0)
        assert inside.connections == 0


@pytest.mark.parametrize(
    "where", ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "javascript:1", "data:text/html,x"]
)
async def test_a_redirect_to_another_scheme_is_refused(where: str) -> None:
    with pytest.raises(PageError, match=r"scheme|no address"):
        await fetch(redirects(where))


async def test_redirects_are_followed_and_counted() -> None:
    async with serving(redirects("/b"), redirects("c"), redirects("?d"), says(PAGE)) as server:
        assert await fetcher(server.port).text(server.url, 60.0) == TEXT
    assert [got.target for got in server.requests] == ["/", "/b", "/c", "/c?d"]
    with pytest.raises(PageError, match="more than 3 redirects"):
        await fetch(redirects("/"))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:22/",
        "http://127.0.0.1:0/",
        "http://\ud800/",
        "http://user:pw@127.0.0.1:80/",
        "http://user@127.0.0.1:80/",
        "file:///etc/passwd",
        "//x",
        "x",
        "",
        "http://",
        "http://[",
        "http://a b/",
        "http://\0/",
    ],
)
async def test_an_address_that_is_not_fetched(url: str) -> None:
    with pytest.raises(PageError):
        await fetcher(80).text(url, 60.0)


@hypothesis.settings(max_examples=200, deadline=None)
@given(st.text(alphabet="htps:/@.[]%0a\ud800 \\?#&=<>xn--\uff0e1:65-_", max_size=14))
def test_any_address_is_fetched_or_refused(text: str) -> None:
    async def nowhere() -> None:
        page = fetcher(80, resolve=lambda host, port: [], tls=UNUSED)
        try:
            for url in (text, f"http://{text}"):
                with pytest.raises(PageError):
                    await page.text(url, 60.0)
        finally:
            page.close()

    asyncio.run(nowhere())


async def test_the_shipped_rules_take_the_two_ports_of_the_web_and_no_network_of_ours() -> None:
    rules = PageRules()
    assert (rules.ports, rules.allowed) == ({80, 443}, ())


async def test_no_proxy_resolves_the_name_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says("by proxy")) as proxy, serving(says(PAGE)) as server:
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        assert await fetcher(server.port).text(server.url, 60.0) == TEXT
    assert proxy.connections == 0


async def test_another_address_of_the_name_is_tried() -> None:
    async with serving(says(PAGE)) as server:
        names = Names(outside_test=[["127.0.0.3", "127.0.0.1"]])
        rules = PageRules(ports=frozenset((server.port,)), allowed=(ip_network("127.0.0.0/8"),))
        text = await PageFetcher(rules, resolve=names).text(f"http://outside.test:{server.port}/", 60.0)
    assert text == TEXT


# Bounds


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (says("x" * 5000), "larger than 4096 bytes"),
        (bomb(64), "larger than 4096 bytes"),
        (says(b"\x1f\x8b", headers=[("content-encoding", "gzip")]), "breaks off"),
        (says("x", headers=[("content-encoding", "br")]), "packed as 'br'"),
        (says(b"%PDF", kind="application/pdf"), "content type 'application/pdf'"),
        (says(b"x", kind=""), "content type ''"),
        (says("gone", 404), "status 404"),
        (says("", 302), "status 302"),
        (raw(b""), "RemoteProtocolError"),
        (raw(b"HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 10\r\n\r\nx"), "RemoteProtocolError"),
        (raw(b"HTTP/1.1 200 X\r\nx: " + b"x" * 10**6), "RemoteProtocolError"),
    ],
)
async def test_what_is_no_page_to_read(handler: Handler, why: str) -> None:
    with pytest.raises(PageError, match=why):
        await fetch(handler, max_bytes=4096)


@pytest.mark.parametrize("handler", [drips(), drips(head=b"HTTP/1.1 200 X\r\nx: "), drips(head=b"HTTP/1.1 200 ")])
async def test_a_slow_page_has_one_time_limit_in_all(handler: Handler) -> None:
    begin = time.monotonic()
    with pytest.raises(PageError, match=r"longer than 0\.5 s"):
        await fetch(handler, timeout_s=0.5)
    assert time.monotonic() - begin < SOON_S


async def test_a_slow_resolver_has_it_too() -> None:
    told = threading.Event()

    def silent(host: str, port: int) -> Sequence[str]:
        told.wait(SOON_S)
        return []

    page = fetcher(80, resolve=silent)
    try:
        with pytest.raises(PageError, match=r"longer than 0\.2 s"):
            await page.text("http://outside.test/", 0.2)
    finally:
        told.set()
        page.close()


async def test_a_slow_chain_of_redirects_has_it_too() -> None:
    async def slow(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        await redirects("/")(got, writer)

    with pytest.raises(PageError, match=r"longer than 0\.5 s"):
        await fetch(slow, timeout_s=0.5, redirects=10**6)


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side with a certificate for outside.test, and a client's that trusts it."""
    x509 = pytest.importorskip("cryptography.x509", reason="makes the certificate")
    import datetime

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "outside.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("outside.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "server.pem"
    file.write_bytes(plain + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_the_certificate_is_the_names_though_the_connection_is_to_an_address(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_side, client_side = certificate
    names = Names(outside_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    async with serving(says(PAGE), tls=server_side) as server:
        page = fetcher(server.port, resolve=names, tls=client_side)
        assert await page.text(f"https://outside.test:{server.port}/", 60.0) == TEXT
        with pytest.raises(PageError, match="CERTIFICATE_VERIFY_FAILED"):
            await page.text(f"https://other.test:{server.port}/", 60.0)
        with pytest.raises(PageError, match="CERTIFICATE_VERIFY_FAILED"):
            await fetcher(server.port, resolve=names).text(f"https://outside.test:{server.port}/", 60.0)


# What comes of a page


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("blåbær".encode("latin-1"), "text/plain; charset=ISO-8859-1", "blåbær"),
        ("blåbær".encode(), "text/plain", "blåbær"),
        ('<meta charset="windows-1252"><p>blåbær'.encode("cp1252"), "text/html", "blåbær"),
        (b"<p>a\xff", "text/html; charset=utf-8", "a\ufffd"),
        (b"<p>a", "text/html; charset=zip", "a"),
        (b"<p>a", "text/html; charset=unicode_escape", "a"),
        (b"<p>a", "text/html; charset=iso-8859-12", "a"),
        (b"  a <b>\n", "text/plain", "a <b>"),
        (b"<p>a", "TEXT/HTML;charset=UTF-8", "a"),
    ],
)
async def test_the_charset_is_the_pages_own(body: bytes, kind: str, text: str) -> None:
    assert await fetch(says(body, kind=kind)) == text


async def with_pages(service: Handler, page: PageFetcher, k: int = 3, count: int = 2, **fields: Any) -> Any:
    """A search whose first results are fetched by ``page``."""
    async with serving(service) as server:
        executor = search_executor(settings(server.url, **fields), {})
        source = WithPages(executor._source, page, count)
        executor = SearchExecutor(executor._backend, source, timeout_s=20.0)
        await executor.start()
        try:
            return await executor.run(search(k=k))
        finally:
            await executor.close()


def results(*urls: str) -> Handler:
    return says({"results": [{"title": f"T{i}", "url": url, "content": f"snippet {i}"} for i, url in enumerate(urls)]})


async def test_the_first_results_have_their_pages_text() -> None:
    async with serving(says(PAGE)) as pages:
        record = await with_pages(results(*(f"{pages.url}/{i}" for i in range(3))), fetcher(pages.port))
    contents = [row["content"] for row in record["results"]]
    assert contents == [TEXT, TEXT, "snippet 2"]
    assert sorted(got.target for got in pages.requests) == ["/0", "/1"]


async def test_a_page_that_is_not_to_be_had_leaves_the_snippet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving(drips()) as slow, serving(says("<script>x</script>")) as empty:
        page = fetcher(slow.port, empty.port, timeout_s=0.5)
        service = results(f"http://127.0.0.2:{slow.port}/", slow.url, empty.url, "")
        record = await with_pages(service, page, k=4, count=4)
    assert [row["content"] for row in record["results"]] == [f"snippet {i}" for i in range(4)]
    assert "127.0.0.2 is no public address" in caplog.text


async def test_a_long_page_is_cut() -> None:
    async with serving(says("<p>" + "word " * 10_000)) as pages:
        record = await with_pages(results(pages.url), fetcher(pages.port))
    assert len(record["results"][0]["content"]) == 3000


async def test_fetching_is_off_unless_the_config_says_so() -> None:
    assert not isinstance(search_executor(settings("http://127.0.0.1:1"), {})._source, WithPages)
    source = search_executor(settings("http://127.0.0.1:1", fetch_pages=2), {})._source
    assert isinstance(source, WithPages)
    assert isinstance(source._fetcher, PageFetcher)
    assert source._fetcher.rules == PageRules()
