"""The contract of every way that weights travel to an engine of their own.

Invariant: when ``send`` returns, the engine samples from exactly the trainer's weights under this version, and it said
so itself: the receipt's checksum was computed on the engine's side and equals the trainer's. Where it cannot be shown,
``send`` raises and no rollout of the new version is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Receipt:
    """What arrived: ``checksum`` as computed by the engine, ``bytes`` shipped, wall ``seconds`` in all and those that
    the engine was ``paused``."""

    version: int
    checksum: str
    bytes: int
    seconds: float
    paused: float

    def metrics(self) -> dict[str, float]:
        """For the batch that is rolled out next; of weights that did not travel, nothing."""
        if not self.checksum:
            return {}
        return {
            "weights/send_seconds": self.seconds,
            "weights/paused_seconds": self.paused,
            "weights/sent_bytes": float(self.bytes),
        }


class WeightTransfer(Protocol):
    """One back end: a copy in this process, a folder, NCCL, or an adapter alone."""

    def send(self, version: int, model: Any) -> Receipt:
        """Bring the weights of ``model`` (a torch module, possibly under PEFT) to the engine.

        Turns in flight go on from the new weights. Blocks; called from the trainer's thread. Raises RunError with both
        sides' figures when the engine's checksum differs, or when it does not answer within its deadline.
        """
        ...

    def close(self) -> None:
        """Free what the back end holds. Safe to repeat."""
        ...
