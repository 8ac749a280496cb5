"""One check: it ends by its deadline with a finding, or the finding names it as what hangs.

Invariant: a check runs in a thread of its own, so that one which never comes back is left behind and the others still
run; a check whose ``needs`` did not come out well is skipped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from callwright.serving.errors import CallwrightError


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works here, and may not be what was tested
    SKIPPED = "skipped"  # there is nothing to look at
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check saw, in one line, and what to do about it ('' where nothing is to be done, or ``says`` has it)."""

    status: Status
    says: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to try. What ``run`` raises is a failure, and ``mend`` says what to do then; a library that is not
    installed skips it."""

    name: str
    run: Callable[[], Verdict]
    deadline_s: float
    mend: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's verdict, and the seconds that it took."""

    name: str
    verdict: Verdict
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        verdict = self.verdict
        seconds = round(self.seconds, 2)
        return {
            "name": self.name,
            "status": str(verdict.status),
            "seconds": seconds,
            "says": verdict.says,
            "mend": verdict.mend,
        }


def examine(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings, one after another, each as soon as it is there."""
    statuses: dict[str, Status] = {}
    for check in checks:
        started = time.monotonic()
        unmet = [name for name in check.needs if statuses.get(name) not in (Status.OK, Status.WARNING)]
        verdict = Verdict(Status.SKIPPED, f"needs {unmet[0]}, which see above") if unmet else _verdict(check)
        statuses[check.name] = verdict.status
        yield Finding(check.name, verdict, time.monotonic() - started)


def _verdict(check: Check) -> Verdict:
    answer: Future[Verdict] = Future()

    def run() -> None:
        try:
            answer.set_result(check.run())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=f"doctor: {check.name}", daemon=True).start()
    try:
        return answer.result(timeout=check.deadline_s)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("callwright"):
            raise
        return Verdict(Status.SKIPPED, f"{error.name} is not installed", "pip install 'callwright[train]'")
    except TimeoutError as error:
        if not answer.done():
            return Verdict(Status.FAILED, f"{check.name} hangs: no end after {check.deadline_s:g} s", check.mend)
        return _failed(check, error)
    except Exception as error:  # whatever is broken is what the doctor is there to say
        return _failed(check, error)


def _failed(check: Check, error: Exception) -> Verdict:
    text = " ".join(str(error).split())
    says = text if isinstance(error, CallwrightError) else f"{type(error).__name__}: {text}"
    return Verdict(Status.FAILED, says, check.mend)
