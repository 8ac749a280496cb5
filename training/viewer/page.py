"""The one page: markup, style and script of ``assets/`` with the data in it, and nothing fetched from elsewhere.

Invariants: the browser runs the script whose hash the page names and no other, and may connect to its own server at
most. Data is JSON in ASCII without ``<``, so no text of a trace can end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"
# One scope, in this order: each file may use what stands in the ones before it.
SCRIPTS = ("dom", "data", "charts", "summary", "rows", "filters", "table", "tokens", "rollout", "main")


def to_json(value: Any) -> str:
    """JSON that is safe inside an HTML element. Raises ValueError for a NaN."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # outside strings JSON has no such character


def page(data: dict[str, Any], *, served: bool) -> str:
    """The whole HTML document. ``served``: it may fetch more from the server that it came from."""
    parts = {"style": _asset("style.css"), "script": _script(), "data": to_json(data)}
    parts["policy"] = policy(served=served)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def policy(*, served: bool) -> str:
    """The page's Content-Security-Policy."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(_script())}",
            f"style-src {_hash(_asset('style.css'))}",
            "connect-src 'self'" if served else "connect-src 'none'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def labels(folders: Sequence[Path]) -> list[str]:
    """What to call the runs: their names, or their paths where the names are one."""
    names = [os.path.basename(os.path.abspath(folder)) for folder in folders]  # "." has no name; a link keeps its own
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "})();\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
