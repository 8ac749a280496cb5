"""How tokens are sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from callwright.training.sections.base import Free, Positive, Seconds, Section


class Remote(Section):
    """The server of a vendor's model, for `engine.kind: remote`; the model's name there is `model.path`."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] = "http://127.0.0.1:8000"
    """Its address without the API's own path; the default is where `callwright serve` listens."""
    wire: Literal["openai", "responses", "anthropic", "gemini", "ollama"] = "openai"
    """The API that it speaks."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] | None = None
    """Environment variable that holds the API key; null sends none."""
    timeout_s: Seconds = 120.0
    """Time for one request; a busy or unreachable server is asked three times."""
    fields: Free = Field(default_factory=dict)
    """Put into every request as they are, such as `{reasoning_effort: low}`."""


class Vllm(Section):
    """The servers of `engine.kind: vllm`: one that is started here (`make vllm` installs it), or running ones."""

    urls: Annotated[tuple[Annotated[str, Field(pattern=r"^https?://[^\s@]+$")], ...], Field(strict=False)] = ()
    """Addresses of servers to join, all with the model of `model.path`; none starts one on this machine."""
    arguments: Free = Field(default_factory=dict)
    """Of the server that is started, as `vllm serve` names them: `{tensor-parallel-size: 2, enforce-eager: true}`."""
    start_s: Seconds = 600.0
    """Time for the started server to be ready; it may compile the model first."""
    sync: Literal["disk", "lora", "nccl"] = "disk"
    """How weights get to the servers in training: whole through a folder that they see too, the adapter of `model.lora`
    alone, or from GPU to GPU."""
    in_flight: Positive | None = None
    """Requests open at one server at once, those of all processes of a trainer; null takes `engine.max_batch`."""


class Engine(Section):
    """How tokens are sampled."""

    kind: Literal["transformers", "remote", "vllm"] = "transformers"
    """`transformers` runs the model here; `vllm` in vLLM servers; `remote` asks a vendor's, by its text alone, for
    `eval` and `chat`."""
    max_batch: Positive = 256
    """Rollouts that decode at once, or requests of `remote` and `vllm`; others wait for a slot."""
    max_context: Positive = 512
    """Positions a rollout's cache can hold, prompt included."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes cuda where there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Weights and cache of the engine and the trainer; bfloat16 is slower than float32 on most CPUs."""
    remote: Remote = Remote()
    vllm: Vllm = Vllm()
