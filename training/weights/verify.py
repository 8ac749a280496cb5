"""The proof of a transfer: what the server has is compared with what the trainer sent.

Two looks, because each misses what the other sees. Digests are exact, but say nothing of a kernel's own copy of a
weight, nor of where a tensor went; what the server samples then goes through all that every turn goes through, but its
logprobs agree within a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, fused
from callwright.serving.errors import RunError

PROBE_TOKENS = 32
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.15}  # mean difference in nats


def refuse_other_weights(server: str, version: int, sent: Mapping[str, int], read: Mapping[str, int]) -> None:
    """``read``: what the server read, by the checkpoint's names. Raises RunError with both sides' figures."""
    wrong = [name for name in sorted({*sent, *read}) if sent.get(name) != read.get(name)]
    if wrong:
        raise RunError(
            f"{server} did not get version {version}: {len(wrong)} of {len(sent)} tensors differ, first {wrong[0]} "
            f"(trainer {_figure(sent, wrong[0])}, server {_figure(read, wrong[0])}); checksum of all: trainer "
            f"{checksum(sent)}, server {checksum(read)}"
        )


def refuse_other_memory(server: str, version: int, sent: Mapping[str, int], workers: Sequence[Any]) -> int:
    """``workers``: each one's answer to ``callwright_held...``. The number of tensors that could be compared.

    Of a tensor that is cut over workers the shards' digests add up; one that all workers hold is equal on all. Raises
    RunError where a tensor is neither, and where there is nothing to compare.
    """
    compared = 0
    for name in workers[0]["held"]:
        want = fused(sent, name, workers[0]["packed"])
        if want is None:
            continue
        found = [int(worker["held"].get(name, "0"), 16) for worker in workers]
        whole = set(found) == {want}
        if not whole and sum(found) % 2**64 != want:
            raise RunError(
                f"{server} read version {version} but does not hold it: {name} has digest {found[0]:016x}, the "
                f"trainer's {want:016x}"
            )
        compared += 1
    if not compared:
        raise RunError(f"{server} holds nothing of version {version} that could be compared with the trainer's")
    return compared


def probe_ids(vocabulary: int) -> list[int]:
    """A prompt of ids that are spread over the vocabulary: it touches many rows of the embedding."""
    return [(7 + 7919 * place) % vocabulary for place in range(PROBE_TOKENS)]


def own_logprobs(model: Any, ids: Sequence[int]) -> list[float]:
    """The logprob in nats of every id but the first, given those before it."""
    prompt = torch.tensor([list(ids)], device=next(model.parameters()).device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits = model(input_ids=prompt).logits[0, :-1].float()
    finally:
        model.train(training)
    found: list[float] = logits.log_softmax(-1).gather(1, prompt[0, 1:, None])[:, 0].tolist()
    return found


def refuse_other_answers(
    server: str, version: int, own: Sequence[float], served: Sequence[float], dtype: torch.dtype
) -> float:
    """The mean difference of two probes in nats. Raises RunError where it is too large for the dtype."""
    mean = sum(abs(a - b) for a, b in zip(own, served, strict=True)) / len(own)
    if not mean <= TOLERANCE.get(dtype, TOLERANCE[torch.bfloat16]):
        at = max(range(len(own)), key=lambda place: abs(own[place] - served[place]))
        raise RunError(
            f"{server} has the tensors of version {version} but does not compute with them: logprobs of samples "
            f"differ by {mean:.3g} nats on average (worst: trainer {own[at]:.4f}, server {served[at]:.4f})"
        )
    return mean


def _figure(digests: Mapping[str, int], name: str) -> str:
    return f"{digests[name]:016x}" if name in digests else "nothing"
