"""Fetching the page behind a result, as a stranger's URL has to be fetched.

Invariants: http and https on their own ports; the connection goes to an address that was judged, after each redirect
anew, and through no proxy, which would resolve the name again; the certificate is the name's; size (unpacked), number
of redirects and the time in all are bounded; only text is read; nothing is kept from one fetch to the next.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import httpx

from callwright.envs.executors.web.addresses import AddressRefused, Network, Resolve, judged_addresses, system_resolve
from callwright.envs.executors.web.body import ACCEPT_ENCODING, BodyError, read_body
from callwright.envs.executors.web.faults import PageError
from callwright.envs.executors.web.page_text import text_of_html

T = TypeVar("T")

THREADS = 8
CONNECT_S = 2.0  # to one address, while there may be another
_HTML = ("text/html", "application/xhtml+xml")
_TYPES = (*_HTML, "text/plain")
# Those of real pages. Python knows codecs that are slow or no charset at all.
_CHARSET = re.compile(
    r"utf-?8|us-ascii|iso-8859-([1-9]|1[013456])|windows-125[0-8]|koi8-[ru]|gb2312|gbk|gb18030|big5|euc-(jp|kr)"
    r"|shift_jis",
    re.I,
)
_META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([A-Za-z0-9_-]{1,40})", re.I)
_META_BYTES = 2048


@dataclass(frozen=True, slots=True)
class PageRules:
    """The bounds of a fetch: bytes unpacked, redirects, seconds in all. ``allowed`` networks count as public."""

    max_bytes: int = 2 * 1024 * 1024
    redirects: int = 3
    timeout_s: float = 5.0
    ports: frozenset[int] = frozenset((80, 443))
    allowed: Sequence[Network] = ()


class PageFetcher:
    """Fetches pages' texts. Names are resolved and pages are read in threads of its own: a name server that does not
    answer must hold up nobody else's."""

    def __init__(
        self,
        rules: PageRules | None = None,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.rules = rules or PageRules()
        self._resolve = resolve
        self._tls = tls or httpx.create_ssl_context()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web-pages")

    async def text(self, url: str, seconds: float) -> str:
        """The page's text, within these ``seconds`` and the rules' own. Raises PageError."""
        limit = min(seconds, self.rules.timeout_s)
        try:
            async with asyncio.timeout(limit):
                kind, charset, body = await self._follow(url)
                return await self._in_thread(_text, kind, charset, body)
        except TimeoutError:
            raise PageError(f"it took longer than {limit:.1f} s") from None

    def close(self) -> None:
        """Safe to call twice. A look-up that hangs is left to end by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _follow(self, url: str) -> tuple[str, str, bytes]:
        try:
            target = httpx.URL(url)
            for _ in range(self.rules.redirects + 1):
                answer = await self._fetch(target)
                if not isinstance(answer, str):
                    return answer
                target = target.join(answer)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise PageError(f"no address: {error}") from None
        raise PageError(f"more than {self.rules.redirects} redirects")

    async def _fetch(self, url: httpx.URL) -> str | tuple[str, str, bytes]:
        """Where the page redirects to, or its type, charset and body."""
        addresses = await self._judge(url)
        bounds = httpx.Timeout(None, connect=CONNECT_S)  # the whole is bounded around all of this
        async with httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=bounds) as client:
            for address in addresses:
                try:
                    return await self._read(client, url, address)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    failure = f"{type(error).__name__}: {error}"
                except httpx.HTTPError as error:
                    raise PageError(f"{type(error).__name__}: {error}") from None
        raise PageError(failure)

    async def _judge(self, url: httpx.URL) -> Sequence[str]:
        if url.scheme not in ("http", "https"):
            raise PageError(f"the scheme {url.scheme!r} is not fetched")
        port = url.port if url.port is not None else 443 if url.scheme == "https" else 80
        if port not in self.rules.ports:
            raise PageError(f"the port {port} is not fetched from")
        if url.userinfo or not url.host:
            raise PageError("an address with a user, or without a host")
        try:
            return await self._in_thread(judged_addresses, url.host, port, self._resolve, self.rules.allowed)
        except AddressRefused as error:
            raise PageError(str(error)) from None
        except (OSError, UnicodeError, ValueError) as error:
            raise PageError(f"{url.host} does not resolve: {error}") from None

    async def _read(self, client: httpx.AsyncClient, url: httpx.URL, address: str) -> str | tuple[str, str, bytes]:
        headers = {
            "host": url.netloc.decode("ascii"),
            "user-agent": "callwright",
            "accept": ", ".join(_TYPES),
            "accept-encoding": ACCEPT_ENCODING,
        }
        # The pinned address in the URL; the name where the other side looks for it, and where TLS checks it.
        pinned = url.copy_with(host=address, fragment=None)
        extensions = {"sni_hostname": url.raw_host.decode("ascii")}
        async with client.stream("GET", pinned, headers=headers, extensions=extensions) as answer:
            if answer.is_redirect and "location" in answer.headers:
                return str(answer.headers["location"])
            if answer.status_code != 200:
                raise PageError(f"status {answer.status_code}")
            kind, _, parameters = answer.headers.get("content-type", "").partition(";")
            kind = kind.strip().lower()
            if kind not in _TYPES:
                raise PageError(f"the content type {kind[:60]!r} is not read")
            try:
                encoding = answer.headers.get("content-encoding", "")
                body = await read_body(answer.aiter_raw(), encoding, self.rules.max_bytes)
            except BodyError as error:
                raise PageError(f"the page is {error}") from None
            return kind, parameters, body


def _text(kind: str, parameters: str, body: bytes) -> str:
    text = body.decode(_charset(parameters, body), errors="replace")
    return text_of_html(text) if kind in _HTML else text.strip()


def _charset(parameters: str, body: bytes) -> str:
    """The charset of the header, else of the page's own head, else UTF-8."""
    named = re.search(r"charset=[\"']?([A-Za-z0-9_-]{1,40})", parameters, re.I)
    meta = None if named else _META.search(body[:_META_BYTES])
    charset = named[1] if named else meta[1].decode("ascii") if meta else ""
    return charset if _CHARSET.fullmatch(charset) else "utf-8"
