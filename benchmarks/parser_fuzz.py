"""Does any text break the parser? Random and coverage-guided inputs, each parsed whole and in pieces, in every dialect.

Where atheris is installed it steers the inputs by the branches that they reach; elsewhere they are random, and a note
says so. An input is bytes: they choose dialect, tools, block limit and cuts, and then pieces of text. ``check`` is also
what the tests run. It raises AssertionError for a broken invariant.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.common import Measured, progress, run
from callwright.serving.protocol import DEFAULT_TOOLS, DIALECTS, EventType, Parser, ToolCall, validate
from callwright.serving.protocol.scanner import BLOCK_LIMIT

HEADLINE = ("inputs", "inputs_per_s", "slowest_ms")
INPUTS = 1_000_000
LONGEST = 64  # bytes of an input; a byte is up to a whole call

_NAMES = list(DIALECTS)
_LIMITS = (BLOCK_LIMIT, 20)
_PIECES = [
    *dict.fromkeys(marker for dialect in DIALECTS.values() for marker in dialect.markers(None)),
    '<web>{"type":"web","q":"x","k":3}</web>',
    '<execute>[{"name":"web","args":{"q":"x","k":3}},{"name":"code","args":{"code_command":"ls"}}]</execute>',
    '<tool_call>{"name":"code","arguments":{"code_command":"ls"}}</tool_call>',
    '{"type":"code","code_command":"',
    '{"name":"web","arguments":{"q":"',
    '[{"name":"now","args":{',
    "<function=web>",
    "</function>",
    "<parameter=q>",
    "</parameter>",
    "x</parameter><parameter=k>3</parameter></function></tool_call>",
    '"}}',
    '"}',
    "</",
    "\\u00",
    "\u00e9\U0001f600",
    "\ud800",
    "\u2028",
]


def read(data: bytes) -> tuple[str, bool, int, str, list[str]]:
    """The dialect, whether tools are declared, the limit, the text and its chunks that an input stands for."""
    head, body = data[:4].ljust(4, b"\0"), data[4:]
    pieces = [_PIECES[byte - 128] if 128 <= byte < 128 + len(_PIECES) else chr(byte & 127) for byte in body]
    text = "".join(pieces)
    first, second = sorted((head[2] * len(text) // 255, head[3] * len(text) // 255))
    chunks = list(text) if head[2] == head[3] else [text[:first], text[first:second], text[second:]]
    return _NAMES[head[0] % len(_NAMES)], bool(head[1] & 1), _LIMITS[head[1] >> 1 & 1], text, chunks


def check(data: bytes) -> None:
    """Parse one input whole and in pieces, and hold the results to the parser's invariants."""
    dialect, declared, limit, text, chunks = read(data)
    tools = DEFAULT_TOOLS if declared else None
    whole, expected = _parsed(dialect, tools, limit, [text])
    pieces, events = _parsed(dialect, tools, limit, chunks)
    assert events == expected, (dialect, text, chunks)
    assert _verdicts(pieces) == _verdicts(whole), (dialect, text, chunks)
    kinds = [kind for kind, _, _ in events]
    assert kinds.count("call") == len(whole.calls)
    assert kinds.count("result") == len(whole.rejections) <= 1
    assert kinds.count("error") == len(whole.violations)
    if DIALECTS[dialect].call_blocks_per_turn == 1:
        assert whole.call_blocks <= 1
    in_bytes = text.encode(errors="surrogatepass")
    assert all(in_bytes[found.offset : found.offset + 1] == b"<" for found in whole.violations), (dialect, text)
    assert all(0 <= found.offset <= len(in_bytes) for found in whole.rejections), (dialect, text)
    if whole.calls:
        assert whole.solution is None
    for call in whole.calls:
        if declared or dialect == "tags":
            again = validate(call.body(), DEFAULT_TOOLS)
            assert isinstance(again, ToolCall)
            assert again.arguments == call.arguments
        assert json.dumps([call.name, call.arguments], ensure_ascii=False).encode()


def _parsed(dialect: str, tools: Any, limit: int, chunks: Sequence[str]) -> tuple[Parser, list[tuple[str, str, Any]]]:
    """The parser, and its events with neighbours of one kind joined."""
    parser = Parser(dialect, tools, limit)
    joined: list[tuple[str, str, Any]] = []
    for event in [event for chunk in chunks for event in parser.feed(chunk)] + parser.close():
        kind, content, payload = str(event.type), event.content, event.payload
        if joined and event.type in (EventType.THINK, EventType.RESPOND) and content:
            before = joined[-1]
            if before[0] == kind and before[2] == payload:
                joined[-1] = (kind, before[1] + content, payload)
                continue
        joined.append((kind, content, payload))
    return parser, joined


def _verdicts(parser: Parser) -> Any:
    calls = [(call.name, call.arguments) for call in parser.calls]
    ends = (parser.solution, parser.incomplete, parser.turn_over, parser.consumed, parser.discarded)
    return calls, parser.rejections, parser.violations, parser.refusals, ends


def _random_inputs(count: int, seed: int) -> tuple[float, float]:
    """Seconds in all, and of the slowest input."""
    rng = random.Random(seed)
    slowest, begin = 0.0, time.perf_counter()
    for number in range(count):
        data = rng.randbytes(rng.randint(4, LONGEST))
        started = time.perf_counter()
        check(data)
        slowest = max(slowest, time.perf_counter() - started)
        if number % 100_000 == 0:
            progress(f"{number} random inputs")
    return time.perf_counter() - begin, slowest


def _guided_inputs(count: int, seed: int) -> float:
    """Seconds that atheris took, in a process of its own because it never returns. Raises where it found a fault."""
    command = [sys.executable, "-m", "benchmarks.parser_fuzz", "--guided", str(count), "--seed", str(seed)]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - begin


def _guided(count: int, seed: int) -> None:
    import atheris

    for name in [name for name in sys.modules if name.startswith("callwright")]:
        del sys.modules[name]  # imported once more, instrumented: our own code alone guides
    with atheris.instrument_imports(include=["callwright"]):
        checked = import_module("benchmarks.parser_fuzz").check
    # A hang is an input of more than ten seconds; the memory is in MiB.
    limits = [f"-runs={count}", f"-seed={seed}", f"-max_len={LONGEST}", "-timeout=10", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1"], checked)
    atheris.Fuzz()


def measure(options: argparse.Namespace) -> Measured:
    """Half of the inputs at random, which gives the time of each, and half guided where that is possible."""
    guided = find_spec("atheris") is not None
    at_random = options.inputs // 2 if guided else options.inputs
    seconds, slowest = _random_inputs(at_random, options.seed)
    rows: list[dict[str, Any]] = [{"inputs": "random", "n": at_random, "seconds": seconds, "faults": 0}]
    notes = []
    if guided:
        rest = options.inputs - at_random
        rows.append({"inputs": "guided", "n": rest, "seconds": _guided_inputs(rest, options.seed), "faults": 0})
    else:
        notes.append("atheris is not installed: no input was guided by coverage")
    total = sum(row["seconds"] for row in rows)
    headline = {"inputs": options.inputs, "inputs_per_s": options.inputs / total, "slowest_ms": slowest * 1000}
    return Measured(rows, headline, notes)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=int, default=INPUTS, help="how many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guided", type=int, default=0, help=argparse.SUPPRESS)


def main(argv: Sequence[str] | None = None) -> int:
    given = argparse.ArgumentParser(add_help=False)
    _options(given)
    options, _ = given.parse_known_args(argv)
    if options.guided:
        _guided(options.guided, options.seed)
        return 0
    return run("parser_fuzz", measure, HEADLINE, argv, _options)


if __name__ == "__main__":
    raise SystemExit(main())
