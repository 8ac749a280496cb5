"""TRL's AsyncGRPOTrainer over our rollouts and our weight transfer, for GPUs: its attention kernel runs nowhere else.

``RolloutWorker`` and ``TransferToEngine`` are what its arguments ``rollout_worker`` and ``weight_transfer`` take. TRL
counts versions from 1, at its first sync; ours is the number of batches trained on, one less. An optimizer step must
take one batch of ours (``per_device_train_batch_size * gradient_accumulation_steps * processes`` rows, with
``token_budget=0`` and ``weight_sync_steps=1``), and its ``max_staleness`` be no smaller than ours.

Invariants: every batch is the same number of rows, so that steps and batches stay in step; a row that must not teach
has advantage 0; what ended the rollouts is raised by ``check_health``, which TRL asks while it waits.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from callwright.envs.rollout_record import Rollout
from callwright.envs.trajectory import Sampled
from callwright.serving.errors import RunError, UserError
from callwright.training.asynchronous.groups import GroupRunner, admission, longest_wait_s
from callwright.training.asynchronous.stream import Stream
from callwright.training.run_custom_grpo import Batch, BatchRecord
from callwright.training.sections.grpo import Asynchronous
from callwright.training.session import Session
from callwright.training.weights.transfer import WeightTransfer


class RolloutWorker:
    """Pushes every batch, in order, as soon as all its groups have closed. ``scale`` is that of the advantages."""

    def __init__(self, session: Session, record: BatchRecord, settings: Asynchronous, scale: str = "none") -> None:
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._session = session
        self._record = record
        self._settings = settings
        self._scale = scale
        self._version = 0
        self._served = asyncio.Event()
        self._stream: Stream | None = None
        self._pump: asyncio.Task[None] | None = None
        self._progress = time.monotonic()

    def start(self) -> None:
        self._progress = time.monotonic()
        self._session.loop.run(self._begin())

    def stop(self) -> None:
        self._session.loop.run(self._end())

    def update_model_version(self, model_version: int) -> None:
        self._session.loop.run(self._serve(model_version - 1))

    def check_health(self, stale_after_s: float) -> None:
        """Raises what ended the rollouts, or RunError where no batch came for so long."""
        if self._pump is not None and self._pump.done() and not self._pump.cancelled():
            self._pump.result()
        quiet = time.monotonic() - self._progress
        if self.rollout_buffer.empty() and quiet > stale_after_s:
            raise RunError(f"no batch of rollouts came for {quiet:.0f} s")

    async def _begin(self) -> None:
        plan = admission(self._session.config, self._settings, self._version)
        self._stream = Stream(plan, GroupRunner(self._session, self._settings).run)
        self._stream.serve(self._version)
        self._pump = asyncio.create_task(self._push_all(self._stream, self._version))

    async def _serve(self, version: int) -> None:
        self._version = version
        self._served.set()
        if self._stream is not None:
            self._stream.serve(version)

    async def _end(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._stream is not None:
            await self._stream.close()

    async def _push_all(self, stream: Stream, first: int) -> None:
        config = self._session.config
        for step in range(first, config.grpo.steps):
            while self._version < step - self._settings.max_staleness:  # its deadline runs from when it may start
                self._served.clear()
                await self._served.wait()
            started = time.monotonic()
            groups = await stream.take(step, longest_wait_s(config, self._settings))
            batch = Batch([row for group in groups for row in group])
            await asyncio.to_thread(self._push, step, batch, time.monotonic() - started)

    def _push(self, step: int, batch: Batch, seconds: float) -> None:
        columns, advantages = self._record.finish(step, batch, self._scale, seconds)
        size = self._session.config.grpo.num_generations
        names = ("prompt_ids", "completion_ids", "env_mask", "logprobs", "reward")
        for number, (row, advantage, *parts) in enumerate(
            zip(batch.rows, advantages, *(columns[name] for name in names), strict=True)
        ):
            group = step * self._session.config.grpo.prompts_per_step + number // size
            self.rollout_buffer.put(_sample(row, float(advantage), group, step, *parts))
        self.metrics_queue.put({f"callwright/{name}": value for name, value in self._record.last.items()})
        self._progress = time.monotonic()


def _sample(
    row: Rollout,
    advantage: float,
    group: int,
    step: int,
    prompt: Sequence[int],
    completion: Sequence[int],
    mask: Sequence[int],
    logprobs: Sequence[float],
    reward: float | None,
) -> RolloutSample:
    counted = list(mask)
    if not any(counted):  # TRL needs a token of every row; with advantage 0 it moves nothing
        advantage, counted[-1] = 0.0, 1
    versions = [segment.version for segment in row.trajectory.segments if isinstance(segment, Sampled)]
    return RolloutSample(
        prompt=[{"role": "user", "content": row.task.question}],
        completion=[{"role": "assistant", "content": row.solution or ""}],
        input_ids=np.array([*prompt, *completion], dtype=np.int64),
        completion_mask=np.array([*(0 for _ in prompt), *counted], dtype=np.int64),
        old_log_probs=np.array([*(0.0 for _ in prompt), *logprobs], dtype=np.float32),
        advantage=advantage,
        model_version=min(versions, default=step) + 1,
        group_id=group,
        metrics={"reward": float("nan") if reward is None else reward},
        enqueued_at=time.time(),
    )


class TransferToEngine:
    """TRL's weight transfer over one of ours, which pauses and resumes by itself and reads ``model``.

    For a trainer whose process holds whole tensors, without adapters: TRL hands sharded or merged ones over in a
    stream that ours do not take.
    """

    def __init__(self, transfer: WeightTransfer) -> None:
        self._transfer = transfer
        self._model: torch.nn.Module | None = None
        self._version = 0

    def attach(self, model: torch.nn.Module) -> None:
        """The trainer's model, which exists only after TRL was given this. Raises UserError for one with adapters."""
        if hasattr(model, "peft_config"):
            raise UserError("model.lora: TRL's asynchronous trainer merges adapters itself; set model.lora=null")
        self._model = model

    def init_weight_transfer(self) -> None:
        """Ours are ready when they are made."""

    def pause(self) -> None:
        """``send_weights`` pauses for as short as it can."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        if self._model is None:
            raise RuntimeError("attach the trainer's model before it trains")
        self._transfer.send(self._version, self._model)
        self._version += 1

    def resume(self) -> None:
        """``send_weights`` resumed already."""

    def destroy(self) -> None:
        self._transfer.close()
