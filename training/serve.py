"""A checkpoint behind the gateway: the model, its engine, and the server around them."""

from __future__ import annotations

import os
from pathlib import Path

from transformers.utils import logging as transformers_logging

from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.errors import UserError
from callwright.serving.gateway.app import KEY_VARIABLE, build_app
from callwright.serving.gateway.plan import Served
from callwright.serving.gateway.server import address, bind, server
from callwright.serving.progress import log
from callwright.training.config import Config
from callwright.training.engines import configured_engine


def serve(config: Config) -> None:
    """Serve until told to stop. Raises UserError for an address or a checkpoint that cannot be had."""
    if config.engine.kind == "remote":
        raise UserError("engine.kind=remote: a vendor's model is served already; serve a checkpoint")
    settings = config.serve
    transformers_logging.disable_progress_bar()
    with bind(settings.host, settings.port) as listener:  # before the model, which takes longer to fail
        if not os.environ.get(KEY_VARIABLE) and settings.host not in ("127.0.0.1", "::1", "localhost"):
            log(f"anyone who reaches {settings.host} can use this model: {KEY_VARIABLE} is not set")
        # Nobody announces a conversation, so there are no waves to wait for.
        configured = configured_engine(config.model_copy(update={"deterministic": False}))
        engine = configured.engine
        assert not isinstance(engine, RemoteEngine)
        served = Served(
            engine=engine,
            codec=configured.codec,
            name=settings.name or _name(config.model.path),
            context=engine.context,
            dialect=config.dialect,
            explain=config.system_prompt == "full",
            constrained=config.decoding == "grammar",
        )
        try:
            app = build_app(served, settings)
            log(f"serving {configured.name} at {address(listener)}")
            server(app).run(sockets=[listener])
        finally:
            engine.close()


def _name(path: str) -> str:
    """A run's name for one of its checkpoints, else the last part of the path."""
    parts = [part for part in Path(path).parts if part not in ("/", ".", "..")]
    return parts[-3] if len(parts) > 2 and parts[-2] == "checkpoints" else parts[-1] if parts else "model"
