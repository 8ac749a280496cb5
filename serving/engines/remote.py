"""Any vendor's model as the policy of a rollout, through the wires: its text is its turn, in one of our dialects.

Invariants: the vendor sees plain messages and no tools of its own kind; what it says is cut where the dialect ends a
turn; no key appears in an error. Its tokens and their logprobs are unknown (ids here are bytes, logprobs are 0), so it
can be evaluated and recorded, and is refused for policy-gradient training.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

from callwright.serving.engines.engine import Completion, EngineError, FinishReason, Request, Sampling
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.protocol.conversation import Message, MessageRole
from callwright.serving.wires import messages_to, read_reply
from callwright.serving.wires.base import CapabilityError, Json, WireError, WireFormat, wire_format

ATTEMPTS = 3  # of one request, where the vendor is busy or unreachable
_BUSY = (408, 409, 429, 500, 502, 503, 504, 529)


class _Api(NamedTuple):
    path: str
    key_header: str
    key_prefix: str
    within: str  # where sampling fields lie
    limit: str
    top_p: str = "top_p"
    top_k: str = ""  # empty: the vendor has none


_APIS = {
    WireFormat.OPENAI: _Api("/v1/chat/completions", "authorization", "Bearer ", "", "max_completion_tokens"),
    WireFormat.RESPONSES: _Api("/v1/responses", "authorization", "Bearer ", "", "max_output_tokens"),
    WireFormat.ANTHROPIC: _Api("/v1/messages", "x-api-key", "", "", "max_tokens", top_k="top_k"),
    WireFormat.GEMINI: _Api(
        "/v1beta/models/{}:generateContent", "x-goog-api-key", "", "generationConfig", "maxOutputTokens", "topP", "topK"
    ),
    WireFormat.OLLAMA: _Api("/api/chat", "authorization", "Bearer ", "options", "num_predict", top_k="top_k"),
}


class RemoteEngine:
    """An engine whose model answers over HTTP. Its ``codec`` is the one that a policy around it must use.

    ``url`` is the server's, without the API's own path. At most ``at_once`` requests are open. ``fields`` go into every
    request as they are, and win.
    """

    exact: ClassVar[bool] = False  # neither the ids nor the logprobs are the model's own

    def __init__(
        self,
        fmt: str,
        url: str,
        model: str,
        *,
        key: str = "",
        timeout_s: float = 120.0,
        at_once: int = 32,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.tool_wire_format = wire_format(fmt)
        if self.tool_wire_format not in _APIS:
            raise CapabilityError(f"no API speaks the wire {fmt}: one of {', '.join(_APIS)}")
        self._api = _APIS[self.tool_wire_format]
        self._url, self._model, self._key = url.rstrip("/"), model, key
        self._timeout_s, self._fields = timeout_s, dict(fields or {})
        self._sampled: dict[str, list[tuple[int, int]]] = {}
        self._threads = ThreadPoolExecutor(at_once, "callwright-remote")
        self.codec = TextCodec()
        self.version = 0

    def open(self, sessions: Iterable[str]) -> None:
        """Turns of a remote model wait for nobody."""

    def release(self, session: str) -> None:
        self._sampled.pop(session, None)

    def close(self) -> None:
        """Ask nothing more; a request that is out is left to its own time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def generate(self, request: Request) -> Completion:
        if request.grammar is not None:
            raise CapabilityError("a vendor's model cannot be held to a grammar of ours")
        spans = self._sampled.setdefault(request.session, [])
        told = self.codec.conversation(request.ids, spans)
        body = self._body([Message.of(MessageRole(role), text) for role, text in told], request)
        try:
            reply = read_reply(self.tool_wire_format, await self._answer(body), model=self._model)
        except WireError as error:
            raise EngineError(f"{self._model}: an answer that is not of this wire: {error}") from error
        completion = self._cut(reply, request)
        spans.append((len(request.ids), len(request.ids) + len(completion.ids)))
        return completion

    async def _answer(self, body: Json) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._post, body)

    def _cut(self, reply: Message, request: Request) -> Completion:
        """The reply up to where the dialect ends the turn, or the budget does."""
        said = self.codec.encode(reply.text)
        reason = FinishReason.LENGTH if reply.truncated else FinishReason.EOS
        if not reply.truncated:
            said += sorted(self.codec.eos)
        if len(said) > request.max_new_tokens:
            said, reason = said[: request.max_new_tokens], FinishReason.LENGTH
        if request.stop is not None and request.watch is not None:
            for count, token in enumerate(said, 1):
                if token not in request.eos and request.watch[token] and request.stop(said[:count]):
                    said, reason = said[:count], FinishReason.STOP
                    break
        return Completion(tuple(said), (0.0,) * len(said), reason, self.version)

    def _body(self, messages: list[Message], request: Request) -> Json:
        api, fmt = self._api, self.tool_wire_format
        sampling = {api.limit: request.max_new_tokens, **_drawing(request.sampling, api)}
        body: Json = dict(messages_to(fmt, messages, model=self._model).payload)
        body |= {api.within: sampling} if api.within else sampling
        if fmt is not WireFormat.GEMINI:  # which has the model in its address
            body["model"] = self._model
        if fmt is WireFormat.OLLAMA:
            body["stream"] = False
        return {**body, **self._fields}

    def _post(self, body: Json) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(self._request(body), timeout=self._timeout_s) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                told = error.read(2000).decode(errors="replace")
                cause = f"{self._model}: {error.code} {self._without_key(told)}"
                again = error.code in _BUSY
            except (OSError, ValueError) as error:
                why = self._without_key(str(getattr(error, "reason", error)))
                cause, again = f"{self._model} at {self._url}: {why}", isinstance(error, OSError)
            if not again or attempt == ATTEMPTS:
                raise EngineError(cause)
            time.sleep(2.0 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _request(self, body: Json) -> urllib.request.Request:
        headers = {"content-type": "application/json", "user-agent": "callwright"}
        if self._key:
            headers[self._api.key_header] = self._api.key_prefix + self._key
        if self.tool_wire_format is WireFormat.ANTHROPIC:
            headers["anthropic-version"] = "2023-06-01"
        url = self._url + self._api.path.format(self._model)
        if not url.startswith(("http://", "https://")):
            raise EngineError(f"{self._model}: {url} is no http address")
        return urllib.request.Request(url, json.dumps(body).encode(), headers)

    def _without_key(self, text: str) -> str:
        return " ".join((text.replace(self._key, "***") if self._key else text).split())


def _drawing(sampling: Sampling, api: _Api) -> Json:
    """Only what differs from a vendor's own default: several models refuse even to be told that."""
    fields: Json = {}
    if sampling.temperature != 1.0:
        fields["temperature"] = sampling.temperature
    if sampling.top_p != 1.0:
        fields[api.top_p] = sampling.top_p
    if sampling.top_k:
        if not api.top_k:
            raise CapabilityError("this wire has no field for top_k")
        fields[api.top_k] = sampling.top_k
    return fields
