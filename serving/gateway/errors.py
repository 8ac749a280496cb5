"""One error inside, five shapes outside: what went wrong, as each vendor's clients read it.

Invariant: nothing of ours but the message leaves; the cause of an internal failure stays in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from callwright.serving.wires.base import Json, WireFormat


class _Words(NamedTuple):
    status: int
    openai: tuple[str, str | None]  # type and code
    anthropic: tuple[int, str]  # status and type, which differ from the others in places
    gemini: str


class Problem(Enum):
    """What can be wrong with a request, or with us."""

    INVALID = _Words(400, ("invalid_request_error", None), (400, "invalid_request_error"), "INVALID_ARGUMENT")
    TOO_LONG = _Words(
        400,
        ("invalid_request_error", "context_length_exceeded"),
        (400, "invalid_request_error"),
        "INVALID_ARGUMENT",
    )
    KEY = _Words(401, ("invalid_request_error", "invalid_api_key"), (401, "authentication_error"), "UNAUTHENTICATED")
    NOT_FOUND = _Words(404, ("invalid_request_error", "not_found"), (404, "not_found_error"), "NOT_FOUND")
    METHOD = _Words(
        405, ("invalid_request_error", "method_not_allowed"), (405, "invalid_request_error"), "UNIMPLEMENTED"
    )
    TOO_LARGE = _Words(
        413, ("invalid_request_error", "request_too_large"), (413, "request_too_large"), "INVALID_ARGUMENT"
    )
    BUSY = _Words(503, ("server_error", "overloaded"), (529, "overloaded_error"), "UNAVAILABLE")
    INTERNAL = _Words(500, ("server_error", None), (500, "api_error"), "INTERNAL")


class ApiError(Exception):
    """Ends a request. ``param`` names the field at fault, where one is."""

    def __init__(self, problem: Problem, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.problem, self.message, self.param, self.code = problem, message, param, code

    def status(self, fmt: WireFormat) -> int:
        words = self.problem.value
        return words.anthropic[0] if fmt is WireFormat.ANTHROPIC else words.status

    def body(self, fmt: WireFormat, request_id: str = "") -> Json:
        """The body of an answer that is nothing but this error."""
        words = self.problem.value
        if fmt is WireFormat.ANTHROPIC:
            error = {"type": words.anthropic[1], "message": self.message}
            return {"type": "error", "error": error, "request_id": f"req_{request_id}"}
        if fmt is WireFormat.GEMINI:
            return {"error": {"code": words.status, "message": self.message, "status": words.gemini}}
        if fmt is WireFormat.OLLAMA:
            return {"error": self.message}
        kind, code = words.openai
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code or code}}

    def chunk(self, fmt: WireFormat, number: int) -> Json:
        """The last chunk of a stream that had begun; ``number`` counts the chunks before it."""
        if fmt is not WireFormat.RESPONSES:
            return self.body(fmt)
        code = self.code or self.problem.value.openai[1] or "server_error"
        error = {"code": code, "message": self.message, "param": self.param}
        return {"type": "error", "sequence_number": number, **error}


def headers(fmt: WireFormat, request_id: str) -> Mapping[str, str]:
    """The header in which each vendor's client looks for the id of a request."""
    return {"request-id" if fmt is WireFormat.ANTHROPIC else "x-request-id": f"req_{request_id}"}
