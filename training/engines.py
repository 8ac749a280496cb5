"""The engine that a config asks for, by its kind: built here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.constraint import Grammars
from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.engines.vllm.server import ServerProcess, start_server
from callwright.serving.errors import RunError, UserError
from callwright.serving.models import Loaded, find_model, load, load_codec
from callwright.serving.progress import log
from callwright.training import processes
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config
from callwright.training.remote import remote_engine
from callwright.training.weights.vllm_servers import server_arguments, server_variables

ServedEngine = TransformersEngine | RemoteEngine | VllmEngine


@dataclass(frozen=True, slots=True)
class Configured:
    """An engine with the codec that a policy around it must use, and a name for people."""

    engine: ServedEngine
    codec: Codec
    name: str


def engine_class(config: Config) -> type[ServedEngine]:
    """The class of the engine that the config asks for."""
    return {"transformers": TransformersEngine, "remote": RemoteEngine, "vllm": VllmEngine}[config.engine.kind]


def configured_engine(config: Config) -> Configured:
    """Serve what ``model.path`` names, a checkpoint or a vendor's model. Raises UserError, RunError."""
    path, engine = config.model.path, config.engine
    if engine.kind == "remote":
        remote = remote_engine(config)
        return Configured(remote, remote.codec, f"{path} at {engine.remote.url}")
    path = resolve_checkpoint(path)
    if engine.kind == "vllm":
        servers, codec = _servers(config, path)
        return Configured(servers, codec, " at ".join((path, *engine.vllm.urls[:1])))
    loaded = load(path, device=engine.device, dtype=engine.dtype)
    return Configured(local_engine(config, loaded), loaded.codec, path)


def local_engine(config: Config, loaded: Loaded, model: Any = None) -> TransformersEngine:
    """The engine over a model in this process (``model``: the same weights under a trainer's wrapper)."""
    return TransformersEngine(
        loaded.model if model is None else model,
        rows=config.engine.max_batch,
        context=config.engine.max_context,
        barrier=config.deterministic,
        grammars=Grammars(loaded.codec),
    )


def trained_servers(config: Config, path: str) -> tuple[VllmEngine, Codec]:
    """vLLM servers of the model at ``path`` that weights can be sent to; of several processes the first starts one, or
    meets those that run, before the others ask it too. Raises UserError, RunError."""
    first: list[tuple[VllmEngine, Codec]] = []

    def begin() -> Sequence[str]:
        first.append(_servers(config, path, trained=True))
        return first[0][0].urls

    urls = processes.told_by_first(begin)
    served = first[0] if first else (_joined(config, urls), load_codec(path))
    processes.gathered([urls])  # before anyone pauses a server that another still meets
    return served


def _servers(config: Config, path: str, *, trained: bool = False) -> tuple[VllmEngine, Codec]:
    if config.deterministic:
        raise UserError("deterministic: vLLM's numbers depend on what else is in a batch; use engine.kind=transformers")
    codec = load_codec(path)
    if config.engine.vllm.urls:
        return _joined(config, config.engine.vllm.urls), codec
    process = _started(config, path, trained)
    try:
        return VllmEngine([process.url], in_flight=_in_flight(config), process=process), codec
    except BaseException as error:
        process.close()
        if isinstance(error, EngineError):
            raise RunError(f"{error} (log: {process.log})") from error
        raise


def _joined(config: Config, urls: Sequence[str]) -> VllmEngine:
    try:
        return VllmEngine(urls, in_flight=_in_flight(config))
    except EngineError as error:
        raise UserError(f"engine.vllm.urls: {error}") from error


def _in_flight(config: Config) -> int:
    """Requests that this process may have open at one server: its share of those of all."""
    return max(1, (config.engine.vllm.in_flight or config.engine.max_batch) // processes.count())


def _started(config: Config, path: str, trained: bool) -> ServerProcess:
    engine, section = config.engine, config.engine.vllm
    arguments = {
        "served-model-name": "policy",
        "max-model-len": engine.max_context,
        "max-num-seqs": engine.max_batch,
        "dtype": engine.dtype,
        "uvicorn-log-level": "warning",
        **(server_arguments(config) if trained else {}),
        **section.arguments,
    }
    log(f"starting vllm serve {path}")
    variables = server_variables(config) if trained else {}
    return start_server(find_model(path), arguments, deadline_s=section.start_s, variables=variables)
