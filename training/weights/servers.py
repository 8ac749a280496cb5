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
from callwright.serving.progress import log
from callwright.training.weights.verify import PROBE_TOKENS, own_logprobs, probe_ids, refuse_other_answers


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of one engine. ``holds(version, url)`` tells the engine which weights one has, while it is paused;
    ``served_as``: the policy's name there, if not the one that they were started with."""

    admins: Sequence[Admin]
    holds: Callable[[int, str], None]
    served_as: str | None = None

    def bring(self, version: int, model: Any, bring_one: Callable[[Admin], None]) -> float:
        """Do ``bring_one`` on each while it is paused, resume it and look at what it samples; seconds paused in all.

        ``model`` is the trainer's. A server that cannot even be paused is left out, as long as another is there: it
        gets no request until it has current weights again. Raises RunError.
        """
        paused, reached, away = 0.0, 0, ""
        for server in self.admins:
            started = time.monotonic()
            try:
                server.pause()
            except EngineError as error:
                away = str(error)
                log(f"version {version} was not sent to {server.url}, which gets no requests without it: {error}")
                continue
            try:
                bring_one(server)
                server.set_version(version)
                self.holds(version, server.url)
                server.resume()
                paused += time.monotonic() - started
                self._look(server, version, model)
            except EngineError as error:
                raise RunError(f"version {version} did not reach {server.url}: {error}") from error
            reached += 1
        if not reached:
            raise RunError(f"version {version} reached no server: {away}")
        return paused

    def _look(self, server: Admin, version: int, model: Any) -> None:
        """Compare the logprobs of what it samples with the trainer's own."""
        prompt = probe_ids(model.config.get_text_config().vocab_size)
        ids, served = server.sampled(prompt, PROBE_TOKENS, self.served_as)
        own = own_logprobs(model, [*prompt, *ids])[len(prompt) - 1 :]
        refuse_other_answers(server.url, version, own, served, next(model.parameters()).dtype)

    def close(self) -> None:
        for server in self.admins:
            server.close()


def numbers(digests: Mapping[str, str]) -> dict[str, int]:
    """Digests as they travelled in JSON."""
    return {name: int(digest, 16) for name, digest in digests.items()}
