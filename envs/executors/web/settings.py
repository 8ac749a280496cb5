"""What a config says of the ``web`` tool. No secret stands here: a key's place is named, never the key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PlainSerializer, field_validator, model_validator

from callwright.envs.executors.tool_kind import ToolSettings
from callwright.envs.executors.web.backends import BACKENDS

BackendName = Literal["corpus", "searxng", "brave", "serper", "tavily", "retriever"]
File = Annotated[Path, Field(strict=False), PlainSerializer(str)]  # text in YAML
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class WebSettings(ToolSettings):
    """The web tool: search in a document collection, or through a search service (docs/web.md)."""

    backend: BackendName = "corpus"
    """What is searched: a local collection, or a service. `retriever` is a Search-R1 retrieval server."""
    corpus: File | None = None
    """The collection's file for `corpus`; null searches the tasks' own documents."""
    url: str | None = None
    """The service's address without the API's own path; null takes the vendor's. `searxng`, `retriever` need one."""
    key_env: str | None = None
    """Environment variable with the service's key; null takes BRAVE_API_KEY, SERPER_API_KEY or TAVILY_API_KEY."""
    fetch_pages: int = Field(default=0, ge=0, le=10)
    """Results, from the first, whose content is the text of their page and not the service's snippet."""
    cache: Literal["off", "read-write", "replay"] = "off"
    """Answers of a service: `read-write` asks once and keeps the answer, `replay` asks nobody and fails on a miss."""
    cache_file: File | None = None
    """The cache's file; several processes may share it."""

    @field_validator("key_env")
    @classmethod
    def _is_a_name(cls, name: str | None) -> str | None:
        # Without the value: whoever writes the key itself here must not find it in an error message.
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError(
                "name an environment variable in capitals, such as BRAVE_API_KEY, and never the key itself"
            )
        return name

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError("an address is http://HOST:PORT or https://HOST")
            if parts.username is not None or parts.password is not None:
                raise ValueError("an address holds no user and no password")
        return url

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.backend == "corpus":
            for key in ("url", "key_env", "fetch_pages", "cache_file"):
                if getattr(self, key):
                    raise ValueError(f"{key} is for the services, and backend is corpus")
            if self.cache != "off":
                raise ValueError("cache is for the services: the corpus always answers alike")
            return self
        backend = BACKENDS[self.backend]
        if self.corpus is not None:
            raise ValueError(f"corpus is a local collection, and backend is {self.backend}")
        if not (self.url or backend.url):
            raise ValueError(f"backend {self.backend} needs url, such as http://127.0.0.1:{backend.usual_port}")
        if self.key_env and not backend.key_env:
            raise ValueError(f"backend {self.backend} takes no key, and key_env is set")
        if (self.cache == "off") != (self.cache_file is None):
            raise ValueError("cache and cache_file go together: set both, or neither")
        return self
