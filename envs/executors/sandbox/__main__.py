"""``python -m callwright.envs.executors.sandbox``: does the sandbox hold on this machine, and by which layers?

Starts a pool of one, which probes its walls, and says what it found. Exit code 0 where it holds, 1 where it does not.
"""

from __future__ import annotations

import asyncio
import os
import sys

from callwright.envs.executors.sandbox.limits import SandboxError
from callwright.envs.executors.sandbox.pool import SandboxPool
from callwright.envs.executors.sandbox.seccomp import DENIED
from callwright.envs.executors.sandbox.walls import MUST_BE


async def report() -> list[str]:
    """One line a layer. Raises SandboxError."""
    pool = SandboxPool(1)
    try:
        await pool.start()
        return [
            f"sandbox: holds; {pool.mode}, started as uid {os.geteuid()}",
            f"probed from inside: {', '.join(MUST_BE)}",
            f"system calls refused by name: {len(DENIED)}",
            "control groups: memory of the whole sandbox is bounded"
            if pool.grouped
            else "control groups: none can be made here; memory is bounded for each process alone",
        ]
    finally:
        await pool.close()


def main() -> int:
    try:
        print("\n".join(asyncio.run(report())))
    except SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
