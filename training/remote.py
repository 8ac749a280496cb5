"""The engine of ``engine.kind: remote``, from the config and the environment.

Invariant: the key comes from the environment variable that the config names, and stands nowhere else.
"""

from __future__ import annotations

import os

from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.errors import UserError
from callwright.training.config import Config


def remote_engine(config: Config) -> RemoteEngine:
    """The vendor's model that the config names. Raises UserError where its key is not in the environment."""
    remote = config.engine.remote
    key = os.environ.get(remote.key_variable, "") if remote.key_variable else ""
    if remote.key_variable and not key:
        raise UserError(f"engine.remote.key_variable={remote.key_variable}: the environment has no such variable")
    return RemoteEngine(
        remote.wire,
        remote.url,
        config.model.path,
        key=key,
        timeout_s=remote.timeout_s,
        at_once=config.engine.max_batch,
        fields=remote.fields,
    )
