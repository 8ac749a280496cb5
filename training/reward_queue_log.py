"""The log of the reward queue: one file a training batch, ``reward_queue/step-N.jsonl``, one line a record.

Fields of a line: message_id, lane, size (bytes); sent_s and settled_s (seconds since the batch began); fate {dropped,
duplicated, overtaken, delay_s}; settled (``paired``, ``duplicate`` where the call had its reply already, the code of
its dead letter, or '' where the batch closed first); crossed (it answered another call than the lane's last).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from callwright.envs.traces import step_name
from callwright.serving.queues.faults import FaultyBroker
from callwright.training.run_folder import write_text

FOLDER = "reward_queue"


@contextmanager
def logged_reward_queue(broker: FaultyBroker | None, run: Path, step: int) -> Iterator[None]:
    """Put the broker's faults into the queue for as long as the block runs, and write what became of each record."""
    if broker is None:
        yield
        return
    with broker.injecting() as entries:
        yield
        lines = [json.dumps(asdict(entry)) + "\n" for entry in entries]
    (run / FOLDER).mkdir(exist_ok=True)
    write_text(run / FOLDER / f"{step_name(step)}.jsonl", "".join(lines))


def read_reward_queue(run: Path) -> Iterator[dict[str, Any]]:
    """Every record of a run, in the order of its steps."""
    for path in sorted((run / FOLDER).glob("*.jsonl")):
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
