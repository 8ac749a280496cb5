"""The engine that a config asks for, by its kind: built here, and nowhere else."""

from __future__ import annotations

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
    """vLLM servers of the model at ``path`` that weights can be sent to. Raises UserError, RunError."""
    return _servers(config, path, trained=True)


def _servers(config: Config, path: str, *, trained: bool = False) -> tuple[VllmEngine, Codec]:
    engine, section = config.engine, config.engine.vllm
    if config.deterministic:
        raise UserError("deterministic: vLLM's numbers depend on what else is in a batch; use engine.kind=transformers")
    codec = load_codec(path)
    in_flight = section.in_flight or engine.max_batch
    if section.urls:
        try:
            joined = VllmEngine(section.urls, in_flight=in_flight)
        except EngineError as error:
            raise UserError(f"engine.vllm.urls: {error}") from error
        return joined, codec
    process = _started(config, path, trained)
    try:
        return VllmEngine([process.url], in_flight=in_flight, process=process), codec
    except BaseException as error:
        process.close()
        if isinstance(error, EngineError):
            raise RunError(f"{error} (log: {process.log})") from error
        raise


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
