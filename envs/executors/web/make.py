"""A search executor from the config. The HTTP library is loaded here, not before."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from callwright.envs.executors.web.backends import BACKENDS
from callwright.envs.executors.web.cache import AnswerCache
from callwright.envs.executors.web.keys import read_key
from callwright.envs.executors.web.search import SearchExecutor
from callwright.envs.executors.web.settings import WebSettings
from callwright.envs.executors.web.sources import Cached, Replay, Source, WithPages
from callwright.serving.errors import UserError

ANSWER_SHAPE = 1  # raised when the same service's same answer becomes another record


def search_executor(settings: WebSettings, environ: Mapping[str, str] = os.environ) -> SearchExecutor:
    """The executor of a service. Raises UserError: no key, no HTTP library."""
    try:
        from callwright.envs.executors.web.client import SearchClient
        from callwright.envs.executors.web.pages import PageFetcher
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        need = f"executors.web.backend {settings.backend} needs httpx"
        raise UserError(f"{need}: pip install 'callwright[web]'") from None
    backend = BACKENDS[settings.backend]
    replay = settings.cache == "replay"
    cache = None
    if settings.cache_file is not None:
        cache = AnswerCache(settings.cache_file, backend.name, answers_digest(settings), replay=replay)
    source: Source
    if cache is not None and replay:
        source = Replay(cache)
    else:
        source = SearchClient(backend, settings.url, read_key(backend, settings.key_env, environ))
        if settings.fetch_pages:
            source = WithPages(source, PageFetcher(), settings.fetch_pages)
        if cache is not None:
            source = Cached(source, cache)
    return SearchExecutor(backend, source, timeout_s=settings.timeout_s)


def answers_digest(settings: WebSettings) -> str:
    """A name for all in the settings, beside query and k, that changes an answer."""
    url = (settings.url or BACKENDS[settings.backend].url).rstrip("/")
    what = json.dumps([ANSWER_SHAPE, url, settings.fetch_pages])
    return hashlib.blake2b(what.encode(), digest_size=8).hexdigest()
