"""The policy as rollouts and evaluations meet it: an engine, and the transfer that keeps it in step with the trainer.

Invariant: a version is sampled from only once its weights were proved to be the trainer's, or are the trainer's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.models import Loaded
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.engines import trained_servers
from callwright.training.session import Session
from callwright.training.weights.frozen import FrozenWatch
from callwright.training.weights.local import LocalTransfer, own_copy
from callwright.training.weights.shared import SharedWeights
from callwright.training.weights.transfer import Receipt, WeightTransfer
from callwright.training.weights.vllm_servers import transfer_to


class ServedPolicy:
    """``folder`` is the run's. Close it before the session."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._servers: VllmEngine | None = None
        self._transfer: WeightTransfer | None = None
        self._watch: FrozenWatch | None = None

    def start(self, loaded: Loaded) -> None:
        """Serve the model that training begins from."""
        if self._session.config.engine.kind == "vllm":
            self._servers, codec = trained_servers(self._session.config, self._base())
            self._session.serve(self._servers, codec)
        else:
            self._session.adopt(loaded)

    def train(self, loaded: Loaded, model: Any) -> None:
        """From now on serve what ``model`` (``loaded``'s, perhaps under an adapter) becomes, version by version."""
        session = self._session
        if self._servers is not None:
            self._transfer = transfer_to(session.config, self._servers, self._folder / "weights")
        elif session.config.grpo.asynchronous is not None:
            copy = own_copy(model)
            self._transfer = LocalTransfer(session.adopt(loaded, copy), copy)
        else:
            self._transfer = SharedWeights(session.adopt(loaded, model))
            return
        self._watch = FrozenWatch()

    def renew(self, version: int, model: Any) -> Receipt:
        """Sample from the present weights of ``model`` from now on. Raises RunError where that cannot be shown."""
        if self._transfer is None:
            raise RuntimeError("no model is being trained yet")
        receipt = self._transfer.send(version, model)
        if self._watch is not None:
            self._watch.look(receipt, model)
        return receipt

    def close(self) -> None:
        """Safe to repeat."""
        if self._transfer is not None:
            self._transfer.close()

    def _base(self) -> str:
        """Where the weights lie that a run's first version has."""
        config, made_here = self._session.config, self._folder / "warm_start"
        if made_here.is_dir():
            return str(made_here)
        return resolve_checkpoint(config.warm_start.checkpoint or config.model.path)
