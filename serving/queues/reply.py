"""What a call comes back with: the executor's record, verbatim, and who owns the way it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from callwright.serving.protocol.values import compact_json


class CallStatus(StrEnum):
    """How a call ended. ``infra_fault`` is ours and stays out of every baseline; the others are the policy's."""

    OK = "ok"  # it ran and succeeded
    ERROR = "error"  # it ran and failed: an observation
    LIMIT = "limit"  # it ran into the sandbox's own time, memory or output limit
    REJECTED = "rejected"  # the validator refused it; it never ran
    INFRA_FAULT = "infra_fault"  # the broker, the worker, the executor or our own deadline


@dataclass(frozen=True, slots=True)
class Reply:
    """The one answer to one call. ``cause`` is one line, '' when the call is ok; ``executor`` names who answered."""

    record: bytes
    status: CallStatus
    cause: str
    seconds: float
    executor: str


def make_record(tool: str, status: CallStatus, **fields: Any) -> bytes:
    """A record as every executor publishes it: compact JSON, ``type`` and ``status`` first."""
    return compact_json({"type": tool, "status": str(status), **fields}).encode()


def fault_reply(tool: str, cause: str, seconds: float, executor: str) -> Reply:
    """The reply to a call that no record came back for."""
    status = CallStatus.INFRA_FAULT
    return Reply(make_record(tool, status, message=cause), status, cause, seconds, executor)


def read_reply(record: bytes, tool: str, seconds: float) -> Reply:
    """The reply that a record tells of. A record that tells nothing is an infra fault; its bytes stay as they are."""
    try:
        said = json.loads(record)
        status = CallStatus(said["status"])
    except (ValueError, KeyError, TypeError):
        return Reply(record, CallStatus.INFRA_FAULT, f"{tool} sent an unreadable record", seconds, tool)
    return Reply(record, status, _cause(status, said), seconds, str(said.get("executor", tool)))


def _cause(status: CallStatus, said: Mapping[str, Any]) -> str:
    if status is CallStatus.OK:
        return ""
    for key in ("message", "stderr"):
        lines = str(said.get(key) or "").strip().splitlines()
        if lines:
            return lines[-1]
    code = said.get("exit_code")
    return f"exit code {code}" if code is not None else str(status)
