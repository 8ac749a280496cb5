"""A service's key: read from the environment, carried in one header, and in no text that anybody reads.

Invariant: a Key never shows itself, and ``hide`` takes it out of whatever came from outside.
"""

from __future__ import annotations

from collections.abc import Mapping

from callwright.envs.executors.web.backends import Backend
from callwright.serving.errors import UserError


class Key:
    """The key of one service, and the variable that it was read from."""

    __slots__ = ("_secret", "variable")

    def __init__(self, variable: str, secret: str) -> None:
        self.variable = variable
        self._secret = secret

    def __repr__(self) -> str:
        return f"Key({self.variable})"

    def header(self, backend: Backend) -> dict[str, str]:
        return {backend.key_header: backend.key_prefix + self._secret}

    def hide(self, text: str) -> str:
        return text.replace(self._secret, "***")


def read_key(backend: Backend, variable: str | None, environ: Mapping[str, str]) -> Key | None:
    """The backend's key; None where it takes none. Raises UserError that names the variable."""
    if not backend.key_env:
        return None
    name = variable or backend.key_env
    secret = environ.get(name, "").strip()
    if not secret:
        raise UserError(f"executors.web.backend {backend.name} needs a key: set the environment variable {name}")
    # Checked here, because a library's complaint about a bad header quotes it.
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UserError(f"the environment variable {name} holds no key: it has spaces or unprintable characters")
    return Key(name, secret)
