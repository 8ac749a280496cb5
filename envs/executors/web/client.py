"""The one HTTP client of all search services.

Invariants: whatever a service does ends as documents or as one SearchFault within the deadline; attempts are few, and
none begins that could not end in time; a redirect is not followed, because it would carry the key elsewhere; the key is
in no document and in no message.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from callwright.envs.executors.corpus import CONTENT_CHARS, Document
from callwright.envs.executors.web.backends import AnswerError, Backend
from callwright.envs.executors.web.backoff import backoff_s, retry_after_s
from callwright.envs.executors.web.body import ACCEPT_ENCODING, BodyError, read_body
from callwright.envs.executors.web.faults import SearchFault, until
from callwright.envs.executors.web.keys import Key

ATTEMPTS = 3
CONNECT_S = 5.0  # of one attempt; a host that drops packets leaves time for another
MAX_ANSWER_BYTES = 2 * 1024 * 1024
_ERROR_BYTES = 16 * 1024  # read of an answer that is an error
_SAID_CHARS = 200  # of that, in our own message
_TITLE_CHARS = 300
_URL_CHARS = 2000


class SearchClient:
    """Asks one service. Between ``open`` and ``close``, in one event loop."""

    def __init__(self, backend: Backend, url: str | None, key: Key | None) -> None:
        self.backend = backend
        self._url = (url or backend.url).rstrip("/")
        self._key = key
        self._http: httpx.AsyncClient | None = None

    async def open(self) -> None:
        # Below this level the library logs headers, and a service can send back what it was sent.
        logging.getLogger("httpcore").setLevel(logging.INFO)
        headers = {"user-agent": "callwright", "accept": "application/json", "accept-encoding": ACCEPT_ENCODING}
        if self._key is not None:
            headers |= self._key.header(self.backend)
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_S),  # the rest is the deadline's
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # an answer depends on its query alone
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def search(self, query: str, k: int, deadline: float) -> tuple[Document, ...]:
        """The best ``k``, by the loop's time ``deadline``. Raises SearchFault."""
        loop = asyncio.get_running_loop()
        before = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with until(deadline, f"{self._url}{before}"):
                    return await self._once(query, k)
            except SearchFault as fault:
                wait = max(fault.after_s, backoff_s(attempt, self.backend.name, query, k))
                left = deadline - loop.time()
                if not fault.again or attempt == ATTEMPTS:
                    raise
                if wait >= left:
                    raise SearchFault(f"{fault}; no time for another attempt ({wait:.1f} s of {left:.1f} s)") from None
                before = f" after {attempt} failed: {fault}"
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, query: str, k: int) -> tuple[Document, ...]:
        status, headers, body = await self._exchange(query, k)
        if status != 200:
            raise self._refusal(status, headers, body)
        try:
            found = self.backend.read(json.loads(body))
        except (ValueError, RecursionError):
            raise SearchFault("the answer is not JSON") from None
        except AnswerError as error:
            raise SearchFault(f"the answer cannot be used: {self._said(str(error))}") from None
        return tuple(self._document(document) for document in found[:k])

    async def _exchange(self, query: str, k: int) -> tuple[int, Mapping[str, str], bytes]:
        if self._http is None:
            raise SearchFault("the client is not open")
        ask = self.backend.ask(query, k)
        method = "GET" if ask.body is None else "POST"
        try:
            async with self._http.stream(method, self._url + ask.path, params=ask.params, json=ask.body) as answer:
                limit = MAX_ANSWER_BYTES if answer.status_code == 200 else _ERROR_BYTES
                try:
                    body = await read_body(answer.aiter_raw(), answer.headers.get("content-encoding", ""), limit)
                except BodyError as error:
                    if answer.status_code == 200:
                        raise SearchFault(f"the answer is {error}") from None
                    body = b""
                return answer.status_code, answer.headers, body
        except httpx.HTTPError as error:
            cause = self._said(str(error))
            raise SearchFault(f"{type(error).__name__}{': ' if cause else ''}{cause}", again=True) from None

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> SearchFault:
        said = self._said(body.decode(errors="replace"))
        if status in (401, 403) and self._key is not None:
            return SearchFault(f"status {status}: the key in {self._key.variable} was refused: {said}")
        if status == 403 and self.backend.on_403:
            return SearchFault(f"status 403: {self.backend.on_403}")
        if 300 <= status < 400:
            where = self._said(headers.get("location", "nowhere"))
            return SearchFault(f"status {status}: it redirects to {where}; set executors.web.url")
        again = status == 429 or status >= 500
        return SearchFault(
            f"status {status}: {said}", again=again, after_s=retry_after_s(headers.get("retry-after")) if again else 0.0
        )

    def _said(self, text: str) -> str:
        """Foreign text as part of one line of ours."""
        return " ".join(self._hidden(text).split())[:_SAID_CHARS]

    def _hidden(self, text: str) -> str:
        return self._key.hide(text) if self._key is not None else text

    def _document(self, found: Document) -> Document:
        def clean(text: str, limit: int) -> str:
            # JSON can hold half a surrogate pair, which no other part of the way could carry.
            return self._hidden(text).encode(errors="replace").decode()[:limit]

        title, url = clean(found.title, _TITLE_CHARS), clean(found.url, _URL_CHARS)
        return Document(title or url, clean(found.content, CONTENT_CHARS), url)
