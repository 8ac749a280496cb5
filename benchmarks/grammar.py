"""What does a decoding grammar buy, and what does it cost? SmolLM2-135M before any training, in a vLLM server.

The same questions and keys in each dialect, with its grammar and without. A call is valid when the parser accepts it;
one that the token budget cuts off is counted apart, because no grammar shortens a turn. Where a model tries no call at
all its share is 0. Speed is sampled tokens over the wall time of a pass, in pairs, with fewer turns in flight than
there are questions, so that one that ends early makes room for the next. A grammar is compiled at its first request;
that is a row of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.common import Measured, Row, Spread, progress, run
from callwright.envs.policy import Policy
from callwright.envs.tasks.source import open_source
from callwright.serving.engines.engine import Completion, Engine, FinishReason, Request, Sampling
from callwright.serving.protocol import DEFAULT_TOOLS, Parser, RejectionCode, get_dialect
from callwright.serving.turn import Turn, turn

DIALECTS = ("tags", "execute", "hermes")
HEADLINE = ("valid_call_rate_free", "valid_call_rate_grammar", "tokens_per_s_ratio")


@dataclass(frozen=True, slots=True)
class Held:
    """An engine whose every turn is held to a grammar (None: to none)."""

    engine: Engine
    grammar: str | None

    @property
    def version(self) -> int:
        return self.engine.version

    def open(self, sessions: Iterable[str]) -> None:
        self.engine.open(sessions)

    def release(self, session: str) -> None:
        self.engine.release(session)

    async def generate(self, request: Request) -> Completion:
        return await self.engine.generate(replace(request, grammar=self.grammar))


@dataclass(frozen=True, slots=True)
class Pass:
    """Every question once."""

    turns: Sequence[Turn]
    seconds: float

    @property
    def calls(self) -> int:
        return sum(len(one.parser.calls) for one in self.turns)

    @property
    def refused(self) -> int:
        """Calls that were refused for what they say, not for where they were cut off."""
        return sum(len(one.parser.rejections) for one in self.turns) - self.cut

    @property
    def cut(self) -> int:
        codes = [rejection.code for one in self.turns for rejection in one.parser.rejections if one.over_budget]
        return codes.count(RejectionCode.TRUNCATED)

    @property
    def calling(self) -> float:
        """The share of turns with a call that was accepted."""
        return sum(bool(one.parser.calls) for one in self.turns) / len(self.turns)

    @property
    def speed(self) -> float:
        return sum(len(one.completion.ids) for one in self.turns) / self.seconds


class Asked:
    """The questions of one dialect, as prompts."""

    def __init__(self, policy: Policy, questions: Sequence[str], tokens: int) -> None:
        self._policy, self._tokens = policy, tokens
        self._prompts = [policy.prompt_ids(question) for question in questions]
        self._grammar = get_dialect(policy.dialect).grammar(policy.tools)

    async def all(self, *, held: bool, key: int) -> Pass:
        engine = Held(self._policy.engine, self._grammar if held else None)
        started = time.perf_counter()
        numbered = enumerate(self._prompts)
        turns = await asyncio.gather(*(self._one(engine, ids, key * 1000 + place) for place, ids in numbered))
        return Pass(turns, time.perf_counter() - started)

    async def first_token(self, *, held: bool) -> float:
        """Seconds to one token."""
        request = Request(self._prompts[0], 1, Sampling(), 0, "first", grammar=self._grammar if held else None)
        started = time.perf_counter()
        await self._policy.engine.generate(request)
        return time.perf_counter() - started

    async def _one(self, engine: Engine, ids: Sequence[int], key: int) -> Turn:
        policy = self._policy
        return await turn(
            engine,
            policy.codec,
            Parser(policy.dialect, policy.tools),
            ids,
            max_new_tokens=self._tokens,
            sampling=policy.sampling,
            key=key,
            session=f"{policy.dialect}-{key}",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report; returns the exit code."""
    return run("grammar", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--questions", type=int, default=32, help="of each dialect")
    parser.add_argument("--tokens", type=int, default=96, help="of a turn at most")
    parser.add_argument("--pairs", type=int, default=5, help="of a free pass and one with the grammar")
    parser.add_argument("--in-flight", type=int, default=8)


def measure(options: argparse.Namespace) -> Measured:
    from callwright.training.config import load_config
    from callwright.training.engines import configured_engine

    words = ["engine.kind=vllm", f"engine.max_batch={options.in_flight}", "engine.vllm.arguments={enforce-eager: true}"]
    config = load_config("smollm2", words)
    tasks = open_source(config.tasks, config.seed).sample("train", options.questions, "grammar", 0)
    configured = configured_engine(config)
    rows: list[Row] = []
    passes: dict[bool, list[Pass]] = {False: [], True: []}
    try:
        for dialect in DIALECTS:
            policy = Policy(configured.engine, configured.codec, DEFAULT_TOOLS, dialect, Sampling(1.0))
            asked = Asked(policy, [task.question for task in tasks], options.tokens)
            rows += _first_tokens(dialect, asked)
            found = _pairs(dialect, asked, options.pairs)
            for held, ours in found.items():
                passes[held] += ours
                rows += _rows(f"{dialect}, {'grammar' if held else 'free'}", ours)
    finally:
        configured.engine.close()
    ratio = Spread.of([held.speed / free.speed for free, held in zip(passes[False], passes[True], strict=True)])
    rows.append(ratio.row("all", "speed, grammar over free", "x"))
    headline = {
        "valid_call_rate_free": _valid(passes[False]),
        "valid_call_rate_grammar": _valid(passes[True]),
        "tokens_per_s_ratio": ratio.median,
    }
    tried = ", ".join(f"{sum(one.calls + one.refused for one in passes[held])}" for held in (False, True))
    turns = options.questions * options.pairs * len(DIALECTS)
    return Measured(rows, headline, [f"calls tried in {turns} turns, free and with the grammar: {tried}"])


def _first_tokens(dialect: str, asked: Asked) -> list[Row]:
    asyncio.run(asked.first_token(held=False))  # the prompt is in the server's cache now
    free, first, second = (asyncio.run(asked.first_token(held=held)) for held in (False, True, True))
    named = (("free", free), ("grammar, compiled at this request", first), ("grammar, compiled before", second))
    return [Spread.of([seconds]).row(f"{dialect}, {name}", "first token", "s") for name, seconds in named]


def _pairs(dialect: str, asked: Asked, pairs: int) -> dict[bool, list[Pass]]:
    found: dict[bool, list[Pass]] = {False: [], True: []}
    for index in range(pairs):
        for held in (False, True) if index % 2 else (True, False):
            found[held].append(asyncio.run(asked.all(held=held, key=index)))
        free, held_ = found[False][-1], found[True][-1]
        progress(f"{dialect}, pair {index + 1}: free {free.speed:.1f} tokens/s, grammar {held_.speed:.1f}")
    return found


def _valid(passes: Sequence[Pass]) -> float:
    calls, refused = sum(one.calls for one in passes), sum(one.refused for one in passes)
    return calls / (calls + refused) if calls + refused else 0.0


def _rows(case: str, passes: Sequence[Pass]) -> list[Row]:
    shares = [_valid([one]) for one in passes]
    ended = [sum(one.completion.reason is FinishReason.LENGTH for one in each.turns) for each in passes]
    return [
        Spread.of(shares).row(case, "valid calls", "share"),
        Spread.of([one.calling for one in passes]).row(case, "turns with a valid call", "share"),
        Spread.of([one.calls for one in passes]).row(case, "calls accepted", "in a pass"),
        Spread.of([one.refused for one in passes]).row(case, "calls refused", "in a pass"),
        Spread.of([one.cut for one in passes]).row(case, "calls cut off", "in a pass"),
        Spread.of(ended).row(case, "turns cut off", "in a pass"),
        Spread.of([one.speed for one in passes]).row(case, "speed", "tokens/s"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
