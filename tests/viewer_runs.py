"""Synthetic run folders for the viewer's tests: traces, metrics and a checkpoint with a tokenizer of single bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from callwright.envs.traces import TraceWriter, step_name

# What a trace may hold and a page must not obey: ends of elements, other directions, half a surrogate pair.
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e<!--\ud800"
)
FAMILIES = ("compute", "lookup", "two_hop")


def byte_tokenizer() -> tuple[object, dict[str, int]]:
    """A tokenizer without merges: each byte of the text is a token, so that characters break into several."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocab = {symbol: place for place, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, vocab


def make_run(folder: Path, steps: int, per_step: int, *, question: str = "wo ist Köln?", tokens: bool = True) -> Path:
    """A run folder of ``steps`` x ``per_step`` rollouts; every fifth is a policy fault with a refused call."""
    tokenizer, _ = byte_tokenizer()
    encode = lambda text: tokenizer.encode(text).ids  # type: ignore[attr-defined]  # noqa: E731
    prompt, call, result, hostile = (
        encode(text) for text in (question, '<web>{"q":"Köln"}</web>', "ok", _whole(HOSTILE))
    )
    for step in range(steps):
        write_step(folder, step, (_rollout(step, n, question, prompt, call, result, hostile) for n in range(per_step)))
    lines = [metrics_line(step + 1) for step in range(steps)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    if tokens:
        checkpoint = folder / "checkpoints" / f"step-{steps}"
        checkpoint.mkdir(parents=True)
        tokenizer.save(str(checkpoint / "tokenizer.json"))  # type: ignore[attr-defined]
        (checkpoint / "COMPLETE").touch()
    return folder


def write_step(folder: Path, step: int, rollouts: Iterable[dict[str, object]]) -> None:
    with TraceWriter(folder / "traces", step_name(step)) as traces:
        for rollout in rollouts:
            traces.write(rollout)


def metrics_line(step: int, **more: float) -> str:
    values = {"reward": step / (step + 5), "zero_variance_share": 0.25, "outcome/scored": 4, "outcome/policy_fault": 1}
    return json.dumps({"step": step, **values, **more}) + "\n"


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _rollout(
    step: int, n: int, question: str, prompt: list[int], call: list[int], result: list[int], hostile: list[int]
) -> dict[str, object]:
    refused = n % 5 == 4
    family = FAMILIES[n % len(FAMILIES)]
    rejection = {
        "code": "missing_key" if n % 2 else "extra_key",
        "message": HOSTILE,
        "offset": 3,
        "tool": "web",
        "raw": "{}",
    }
    return {
        "key": f"{family}/train/{step}/{n}",
        "family": family,
        "outcome": "policy_fault" if refused else "scored",
        "step": step,
        "sample": n % 4,
        "question": question,
        "answer": "42",
        "solution": None if refused else HOSTILE,
        "cause": "a call without q" if refused else "",
        "success": n % 3 == 0,
        "reward": {"parts": {"correct": float(n % 3 == 0), "clean": 0.0 if refused else 0.1}, "total": n / 10},
        "advantage": (n % 3 - 1) / 2,
        "seconds": 1.5,
        "tool_seconds": 0.25,
        "segments": [
            {"kind": "given", "text": question, "ids": prompt},
            {
                "kind": "sampled",
                "text": '<web>{"q":"Köln"}</web>',
                "ids": call,
                "logprobs": [-0.5] * len(call),
                "version": step,
            },
            {"kind": "given", "text": "ok", "ids": result},
            {
                "kind": "sampled",
                "text": _whole(HOSTILE),
                "ids": hostile,
                "logprobs": [-3.0] * len(hostile),
                "version": step,
            },
        ],
        "calls": [
            {
                "tool": "web",
                "arguments": {"q": HOSTILE},
                "status": "ok",
                "cause": "",
                "seconds": 0.1,
                "record": '{"hits":[]}',
            }
        ],
        "rejections": [rejection] if refused else [],
        "violations": 0,
    }
