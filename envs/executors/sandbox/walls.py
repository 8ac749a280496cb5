"""What a program can reach from inside the sandbox: looked at before the first call, or there is no first call.

Invariant: a fact that is not as it must be stops the pool, and the message names it. ``inside.py`` tells the facts: it
runs in the sandbox, once by each of the two ways in which a program is started, before any program of a policy.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callwright.envs.executors.sandbox.bubblewrap import SANDBOX_UID
from callwright.envs.executors.sandbox.limits import Run, SandboxError

_INSIDE = Path(__file__).with_name("inside.py")

MUST_BE: Mapping[str, Any] = {
    "uid": SANDBOX_UID,
    "capabilities": 0,
    "new privileges": False,
    "system-call filter": True,
    "can mount": False,
    "can make namespaces": False,
    "network interfaces": ["lo"],
    "writable folders": [],
    "files of the host": [],
    "environment": [],
}


@contextmanager
def looks() -> Iterator[tuple[bytes, bytes]]:
    """The two commands that look around, while a file of the host is there for them not to find."""
    with tempfile.NamedTemporaryFile(prefix="callwright-") as planted:
        Path(planted.name).chmod(0o644)
        python = f"python3 -c '{_INSIDE.read_text().replace('@FILE@', planted.name)}'"
        yield python.encode(), f"{python}\nexit $?".encode()  # without a shell, and with one


def check(run: Run) -> None:
    """Raises SandboxError unless all that the program saw is as it must be."""
    try:
        facts = json.loads(run.stdout)
    except ValueError:
        words = run.limit or run.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(f"the sandbox's probe failed with exit code {run.exit_code}: {words}") from None
    wrong = [f"{name} is {facts.get(name)!r}" for name, value in MUST_BE.items() if facts.get(name) != value]
    if wrong:
        raise SandboxError(f"the sandbox does not hold: {', '.join(wrong)}")
