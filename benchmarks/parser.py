"""How fast is the stream parser? Ours beside the Hermes readers of vLLM and SGLang, on the same pieces of turns.

Every reader gets a turn four characters at a time, as tokens come, and hands out what it knows. Ours validates the
calls as well. A peer is imported where it is installed, alone: no server and no model is loaded, so its wheel without
dependencies will do, with the few small packages that it asks for. A note says which one is absent; its ratio is then
0. ``vs_vllm_hermes`` is the time of all turns together over ours; the rows have each turn's own. ``linearity`` is the
worst growth of the time per character from 16 KiB to 1 MiB, over kinds of text and sizes of feed.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.common import Measured, Spread, progress, run
from callwright.serving.protocol import DEFAULT_TOOLS, Parser, ToolCall, get_dialect

HEADLINE = ("vs_vllm_hermes", "linearity", "mb_per_s")
STEP = 4  # characters of a feed, about a token
SMALL, LARGE = 1 << 14, 1 << 20

Reader = Callable[[Sequence[str]], int]
"""Reads one turn from its pieces; returns how many calls it found."""


def _written(*calls: ToolCall) -> str:
    return get_dialect("hermes").render_calls(calls)


def _turns() -> dict[str, tuple[str, int]]:
    """By name: a turn, and how many calls it holds."""
    search = [ToolCall("web", {"q": f"capital of country {number}", "k": 3}) for number in range(4)]
    file = "".join(f"    total_{number} = sum(values[{number}:])  # a line of a program\n" for number in range(290))
    thought = "The question has two parts. " * 8
    return {
        "one call": (f"I look it up.\n{_written(search[0])}", 1),
        "thought and four calls": (f"<think>{thought}</think>\n{_written(*search)}", 4),
        "a file of 16 KiB": (f"I write it.\n{_written(ToolCall('code', {'code_command': file[:SMALL]}))}", 1),
        "an answer of 16 KiB": ("It is not hard to see why. " * (SMALL // 27), 0),
    }


def _ours(pieces: Sequence[str]) -> int:
    parser = Parser("hermes", DEFAULT_TOOLS)
    for piece in pieces:
        parser.feed(piece)
    parser.close()
    return len(parser.calls)


def _vllm() -> Reader | str:
    """vLLM's reader, or why there is none."""
    logging.disable(logging.WARNING)
    try:
        from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
    except ImportError as error:
        return f"vLLM's reader is absent: {error}"
    nothing: list[int] = []  # the Hermes reader looks at text alone
    tokenizer, request = object(), object()

    def read(pieces: Sequence[str]) -> int:
        reader = Hermes2ProToolParser(tokenizer)
        text = ""
        for piece in pieces:
            before, text = text, text + piece
            reader.extract_tool_calls_streaming(before, text, piece, nothing, nothing, nothing, request)
        return len(reader.prev_tool_call_arr)

    return read


def _sglang() -> Reader | str:
    """SGLang's reader, or why there is none."""
    try:
        from sglang.srt.entrypoints.openai.protocol import Function, Tool
        from sglang.srt.function_call.hermes_detector import HermesDetector
    except ImportError as error:
        return f"SGLang's reader is absent: {error}"
    tools = [
        Tool(type="function", function=Function(name=tool.name, parameters=dict(tool.input_schema)))
        for tool in DEFAULT_TOOLS
    ]

    def read(pieces: Sequence[str]) -> int:
        reader, named = HermesDetector(), 0
        for piece in pieces:
            named += sum(item.name is not None for item in reader.parse_streaming_increment(piece, tools).calls)
        return named

    return read


def _seconds(reader: Reader, pieces: Sequence[str]) -> tuple[float, int]:
    begin = time.perf_counter()
    found = reader(pieces)
    return time.perf_counter() - begin, found


def _cut(text: str, step: int) -> list[str]:
    return [text[start : start + step] for start in range(0, len(text), step)]


def _against_peers(readers: Mapping[str, Reader], repeats: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    rows: list[dict[str, Any]] = []
    total = dict.fromkeys(readers, 0.0)
    for name, (text, calls) in _turns().items():
        progress(f"parser: {name}")
        pieces = _cut(text, STEP)
        rounds = max(1, 20_000 // len(text))  # of one timing, so that a short turn is not lost in the clock
        times: dict[str, list[float]] = {reader: [] for reader in readers}
        found: dict[str, int] = {}
        for _ in range(repeats):
            for reader, read in readers.items():
                taken = [_seconds(read, pieces) for _ in range(rounds)]
                times[reader].append(sum(seconds for seconds, _ in taken) / rounds)
                found[reader] = taken[0][1]
        for reader in readers:
            spread = Spread.of([seconds * 1000 for seconds in times[reader]])
            ratio = spread.median / (Spread.of(times["callwright"]).median * 1000)
            total[reader] += spread.median
            counted = f"{found[reader]} of {calls}"
            rows.append({"turn": name, "reader": reader, **spread.columns("ms"), "times_ours": ratio, "calls": counted})
    return rows, {reader: time / total["callwright"] for reader, time in total.items()}


def _long(kind: str, size: int) -> str:
    """About ``size`` characters of a kind of text."""
    if kind == "text":
        return "a < b </tool and more " * (size // 22)
    if kind == "one string":
        return _written(ToolCall("code", {"code_command": "x<tool_call> " * ((size - 200) // 19)}))
    call = _written(ToolCall("web", {"q": "capital of Norway", "k": 3})) + " and\n"
    return call * (size // len(call))


def _growth(repeats: int) -> tuple[list[dict[str, Any]], float, float]:
    """Rows, the worst linearity, and MB/s of many calls in 16-character feeds."""
    rows: list[dict[str, Any]] = []
    worst, speed = 0.0, 0.0
    for kind in ("text", "one string", "calls"):
        for step, feed in ((1, "1 character"), (16, "16 characters"), (LARGE, "whole")):
            progress(f"parser: {kind}, {feed}")
            small, large = _cut(_long(kind, SMALL), step), _cut(_long(kind, LARGE), step)
            few, many = sum(map(len, small)), sum(map(len, large))
            near: list[float] = []
            far: list[float] = []
            for _ in range(repeats):
                near.append(sum(_seconds(_ours, small)[0] for _ in range(16)) / 16 / few)
                far.append(_seconds(_ours, large)[0] / many)
            ratio = Spread.of(far).median / Spread.of(near).median
            speeds = Spread.of([1e-6 / seconds for seconds in far])
            rows.append({"turn": f"1 MiB of {kind}", "feed": feed, **speeds.columns("mb_per_s"), "growth": ratio})
            worst = max(worst, ratio)
            if (kind, step) == ("calls", 16):
                speed = speeds.median
    return rows, worst, speed


def measure(options: argparse.Namespace) -> Measured:
    readers: dict[str, Reader] = {"callwright": _ours}
    notes = []
    for name, peer in (("vllm", _vllm()), ("sglang", _sglang())):
        if isinstance(peer, str):
            notes.append(peer)
        else:
            readers[name] = peer
    rows, ratios = _against_peers(readers, options.repeats)
    more, worst, speed = _growth(options.repeats)
    headline = {"vs_vllm_hermes": ratios.get("vllm", 0.0), "linearity": worst, "mb_per_s": speed}
    return Measured([*rows, *more], headline, notes)


def main(argv: Sequence[str] | None = None) -> int:
    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--repeats", type=int, default=5)

    return run("parser", measure, HEADLINE, argv, options)


if __name__ == "__main__":
    raise SystemExit(main())
