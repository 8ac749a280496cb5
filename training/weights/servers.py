"""What every transfer to vLLM servers has in common: pause, bring, prove, resume.

Invariants: a server that does not hold the tensors that were sent stays paused, so nothing is sampled from it. Whether
it computes with them can only be asked of one that runs: that is the first thing it is asked. Either way the run ends.
Of several processes of a trainer the first speaks to the servers; all of them learn the version before a server runs
again, and all compute the trainer's side of what it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.vllm.admin import Admin
from callwright.serving.errors import RunError
from callwright.serving.progress import log
from callwright.training import processes
from callwright.training.weights.verify import PROBE_TOKENS, own_logprobs, probe_ids, refuse_other_answers


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of one engine. ``holds(version, url)`` tells the engine which weights one has, while it is paused;
    ``served_as``: the policy's name there, if not the one that they were started with; ``dtype``: of the weights there,
    if not the trainer's own."""

    admins: Sequence[Admin]
    holds: Callable[[int, str], None]
    served_as: str | None = None
    dtype: torch.dtype | None = None

    def bring(self, version: int, model: Any, bring_one: Callable[[Admin], None]) -> float:
        """Do ``bring_one`` on each while it is paused, resume it and look at what it samples; seconds paused in all.

        ``model`` is the trainer's; each of its processes calls this, and ``bring_one`` is done in the first. A server
        that cannot even be paused is left out, as long as another is there: it gets no request until it has current
        weights again. Raises RunError, in all processes.
        """
        prompt = probe_ids(model.config.get_text_config().vocab_size)
        dtype = self.dtype or next(model.parameters()).dtype
        paused, reached, away = 0.0, 0, ""
        processes.gathered([version])  # a server that is paused under a turn that one of them waits for stops all
        for server in self.admins:
            started = time.monotonic()
            why = processes.told_by_first(partial(_loaded, server, version, bring_one))
            if why is not None:
                away = why
                continue
            self.holds(version, server.url)
            processes.gathered([version])
            resumed, ids, served = processes.told_by_first(partial(self._resumed, server, version, prompt))
            paused += resumed - started
            own = own_logprobs(model, [*prompt, *ids])[len(prompt) - 1 :]
            refuse_other_answers(server.url, version, own, served, dtype)
            reached += 1
        if not reached:
            raise RunError(f"version {version} reached no server: {away}")
        return paused

    def _resumed(self, server: Admin, version: int, prompt: list[int]) -> tuple[float, list[int], list[float]]:
        """When it ran again, and the first that it sampled then."""
        try:
            server.resume()
            return time.monotonic(), *server.sampled(prompt, PROBE_TOKENS, self.served_as)
        except EngineError as error:
            raise _lost(server, version, error) from error

    def close(self) -> None:
        for server in self.admins:
            server.close()


def _loaded(server: Admin, version: int, bring_one: Callable[[Admin], None]) -> str | None:
    """Pause it and give it this version; why it could not be asked, where that is so."""
    try:
        server.pause()
    except EngineError as error:
        log(f"version {version} was not sent to {server.url}, which gets no requests without it: {error}")
        return str(error)
    try:
        bring_one(server)
        server.set_version(version)
    except EngineError as error:
        raise _lost(server, version, error) from error
    return None


def _lost(server: Admin, version: int, error: EngineError) -> RunError:
    return RunError(f"version {version} did not reach {server.url}: {error}")


def numbers(digests: Mapping[str, str]) -> dict[str, int]:
    """Digests as they travelled in JSON."""
    return {name: int(digest, 16) for name, digest in digests.items()}
