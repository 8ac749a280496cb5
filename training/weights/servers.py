"""What every transfer to vLLM servers has in common: pause, bring, prove, resume.

Invariant: a server that does not hold the tensors that were sent stays paused, so nothing is sampled from it. Whether
it computes with them can only be asked of one that runs: that is the first thing it is asked. Either way the run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.vllm.admin import Admin
from callwright.serving.errors import RunError
from callwright.training.weights.verify import own_logprobs, probe_ids, refuse_other_answers


@dataclass(frozen=True, slots=True)
class Probe:
    """A prompt and the trainer's own logprobs of it."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    dtype: Any

    @classmethod
    def of(cls, model: Any) -> Probe:
        ids = probe_ids(model.config.get_text_config().vocab_size)
        return cls(ids, own_logprobs(model, ids), next(model.parameters()).dtype)


def bring(
    servers: Sequence[Admin],
    version: int,
    probe: Probe,
    bring_one: Callable[[Admin], None],
    *,
    served_as: str | None = None,
) -> float:
    """Do ``bring_one`` on every server while it is paused, look at its answers, and resume it; seconds paused in all.

    ``served_as``: the model's name there, if not the one it was started with. Raises RunError.
    """
    paused = 0.0
    for server in servers:
        started = time.monotonic()
        try:
            server.pause()
            bring_one(server)
            server.set_version(version)
            server.resume()
            served = server.prompt_logprobs(probe.ids, served_as)
        except EngineError as error:
            raise RunError(f"version {version} did not reach {server.url}: {error}") from error
        paused += time.monotonic() - started
        refuse_other_answers(server.url, version, probe.logprobs, served, probe.dtype)
    return paused


def numbers(digests: Mapping[str, str]) -> dict[str, int]:
    """Digests as they travelled in JSON."""
    return {name: int(digest, 16) for name, digest in digests.items()}
