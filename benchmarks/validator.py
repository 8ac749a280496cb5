"""What does strictness cost? Our validator beside pydantic and jsonschema, on the same queue bodies, good and bad.

pydantic reads JSON and validates in one compiled step (strict, no extra keys, a union told apart by ``type``);
jsonschema gets what the standard library decodes. ``vs_pydantic`` and ``vs_jsonschema`` are their time over ours on
the good bodies: below 1 the peer is faster. The last column counts the bad bodies that each lets through.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from benchmarks.common import Measured, Spread, progress, run
from callwright.serving.protocol import DEFAULT_TOOLS, ToolCall, validate

HEADLINE = ("vs_pydantic", "vs_jsonschema")
ROUNDS = 300  # of one timing

Accepts = Callable[[bytes], bool]

GOOD: dict[str, bytes] = {
    "web": b'{"type":"web","q":"capital of Norway","k":3}',
    "code": b'{"type":"code","code_command":"python3 -c \'print(2**64)\'"}',
    "spaced": b'{ "type": "web", "q": "caf\\u00e9 \\"x\\"", "k": 10 }',
    "code of 4 KiB": json.dumps({"type": "code", "code_command": "print('x' * 20)  # a line\n" * 160}).encode(),
}
BAD: tuple[bytes, ...] = (
    b'{"type":"web","q":"x","k":"3"}',
    b'{"type":"web","q":"x","k":true}',
    b'{"type":"web","q":"x","k":3.0}',
    b'{"type":"web","q":"x","k":11}',
    b'{"type":"web","q":" ","k":3}',
    b'{"type":"web","q":"x"}',
    b'{"type":"web","q":"x","k":3,"lang":"en"}',
    b'{"type":"web","q":"x","q":"y","k":3}',
    b'{"type":"web","q":"x","k":NaN}',
    b'{"type":"web","q":"\\ud800","k":3}',
    b'{"type":"WEB","q":"x","k":3}',
    b'{"type":"mail","to":"x"}',
    b'[{"type":"web","q":"x","k":3}]',
    b'{"type":"web","q":"x","k":3,}',
    b'{"type":"web","q":"x","k":3} {}',
)


def _ours(body: bytes) -> bool:
    return isinstance(validate(body), ToolCall)


def _pydantic() -> Accepts:
    from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

    class Body(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

    class Web(Body):
        type: Literal["web"]
        q: Annotated[str, Field(min_length=1)]
        k: Annotated[int, Field(ge=1, le=10)]

    class Code(Body):
        type: Literal["code"]
        code_command: Annotated[str, Field(min_length=1)]

    class Azure(Body):
        type: Literal["azure"]
        azure_command: Annotated[str, Field(min_length=1)]

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Web | Code | Azure, Field(discriminator="type")])

    def accepts(body: bytes) -> bool:
        try:
            adapter.validate_json(body)
        except ValidationError:
            return False
        return True

    return accepts


def _jsonschema() -> Accepts:
    from jsonschema import Draft202012Validator

    validators = {tool.name: Draft202012Validator(dict(tool.body_schema)) for tool in DEFAULT_TOOLS}

    def accepts(body: bytes) -> bool:
        try:
            value = json.loads(body)
        except ValueError:
            return False
        # Told apart by type before, which is faster for it than a union of three.
        validator = validators.get(str(value.get("type"))) if isinstance(value, dict) else None
        return validator is not None and bool(validator.is_valid(value))

    return accepts


def measure(options: argparse.Namespace) -> Measured:
    readers = {"callwright": _ours, "pydantic": _pydantic(), "jsonschema": _jsonschema()}
    for name, accepts in readers.items():
        refused = [body for body in GOOD.values() if not accepts(body)]
        if refused:
            raise RuntimeError(f"{name} refuses {refused[0]!r}")
    rows: list[dict[str, Any]] = []
    total = dict.fromkeys(readers, 0.0)
    for kind, body in GOOD.items():
        progress(f"validator: {kind}")
        times: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(options.repeats):
            for name, accepts in readers.items():
                begin = time.perf_counter()
                for _ in range(ROUNDS):
                    accepts(body)
                times[name].append((time.perf_counter() - begin) / ROUNDS * 1e6)
        for name in readers:
            spread = Spread.of(times[name])
            total[name] += spread.median
            rows.append({"body": kind, "validator": name, **spread.columns("us")})
    for name, accepts in readers.items():
        let_through = sum(accepts(body) for body in BAD)
        rows.append({"body": f"{len(BAD)} bad ones", "validator": name, "let_through": let_through})
    ratios = {f"vs_{name}": total[name] / total["callwright"] for name in ("pydantic", "jsonschema")}
    return Measured(rows, ratios)


def main(argv: Sequence[str] | None = None) -> int:
    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--repeats", type=int, default=7)

    return run("validator", measure, HEADLINE, argv, options)


if __name__ == "__main__":
    raise SystemExit(main())
