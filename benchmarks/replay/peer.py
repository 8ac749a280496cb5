"""TRL's side: ``GRPOTrainer`` with ``environment_factory`` and an asynchronous tool, timed from prompts to
completions.

Timed is ``_generate``: rendering, generation and the tool loop; not the rewards, and not the forward pass by which
TRL gets the logprobs that our side already has.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from benchmarks.replay.forcing import ForcedGenerate
from benchmarks.replay.model import Shared
from benchmarks.replay.scripts import GROUP, RESULT, Batch, Latency, Script

MAX_COMPLETION = 900


class _Timed(GRPOTrainer):  # type: ignore[misc]
    """Keeps how long the last ``_generate`` took, and what it gave."""

    last: Batch

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        generated = super()._generate(prompts)
        self.last = Batch(time.perf_counter() - started, generated[1], sum(map(sum, generated[2])))
        return generated


class Peer:
    """TRL's rollouts over the scripts. ``scratch`` is a folder for the trainer's files."""

    def __init__(self, shared: Shared, scripts: Sequence[Script], scratch: str) -> None:
        self._latency: Latency = lambda query: 0.0
        self._rows = [{"prompt": [{"role": "user", "content": script.question}]} for script in scripts]
        self._forced = ForcedGenerate(shared.model.generate, scripts)
        shared.model.generate = self._forced
        arguments = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=len(scripts),
            num_generations=min(GROUP, len(scripts)),
            max_completion_length=MAX_COMPLETION,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
        )
        self._trainer = _Timed(
            model=shared.model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=arguments,
            train_dataset=Dataset.from_list(self._rows),
            processing_class=shared.tokenizer,
            environment_factory=self._environment,
        )

    def run(self, latency: Latency) -> Batch:
        """One batch, with new weights as far as the cache is concerned: TRL keeps none between turns."""
        self._latency = latency
        self._forced.restart()
        self._trainer._generate_and_score_completions([dict(row) for row in self._rows])
        return self._trainer.last

    def _environment(self) -> Any:
        peer = self

        class Collection:
            """An environment of TRL: its public methods are the tools."""

            def reset(self, **row: Any) -> None:
                """Nothing is kept between rollouts."""

            async def web(self, type: str, q: str, k: int) -> str:
                """Search the document collection.

                Args:
                    type: The name of the tool.
                    q: The query.
                    k: The number of results.
                """
                await asyncio.sleep(peer._latency(q))
                return RESULT

        return Collection()
