"""The program in a solution, as text: what a fence holds, and behind its prefix what only continues that.

Invariant: nothing is run or parsed here; the text goes to the sandbox.
"""

from __future__ import annotations

import re

from callwright.envs.tasks.task import Program

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def program_text(solution: str, program: Program) -> str:
    """The source to test. Of several fenced blocks it is the first that defines the function, else the first."""
    blocks = [block for block in _FENCE.findall(solution) if block.strip()]
    defines = re.compile(rf"^\s*(async\s+)?def\s+{re.escape(program.entry)}\b", re.MULTILINE)
    source = next((block for block in blocks if defines.search(block)), blocks[0] if blocks else solution)
    if defines.search(source) or not program.prefix:
        return source
    # A body whose outer space was trimmed has lost the indent of its first line alone.
    return program.prefix + (source if source[:1].isspace() else f"    {source}")
