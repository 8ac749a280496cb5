"""When failures of ours are too many to go on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from callwright.envs.rollout_record import Rollout
from callwright.envs.trajectory import Outcome
from callwright.serving.errors import RunError

_LANE = re.compile(r" in lane \S+(?= of queue)")  # each waits in another one, for the same cause


def stop_on_faults(rows: Sequence[Rollout], max_share: float, folder: Path) -> None:
    """Raise RunError, naming the commonest cause, when over ``max_share`` of the rows failed by no fault of the policy.

    Call it after the rows' traces are written and before anything uses them.
    """
    faults = [_LANE.sub("", row.trajectory.cause) for row in rows if row.outcome in (Outcome.INFRA_FAULT, Outcome.LATE)]
    if len(faults) > max_share * len(rows):
        cause, count = Counter(faults).most_common(1)[0]
        raise RunError(
            f"{len(faults)} of {len(rows)} rollouts failed through no fault of the policy, most of them ({count}) with:"
            f" {cause}; nothing was learned from this batch, its traces are in {folder / 'traces'}"
        )
