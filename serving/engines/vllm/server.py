"""A stock ``vllm serve`` on this machine, for one engine.

Invariants: it is ready before anybody gets its address, or it is gone and the error names its log; it is a process
group of its own, and ends with the engine, and on Linux with this process however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from callwright.serving.children import with_parent
from callwright.serving.errors import RunError, UserError

HOST = "127.0.0.1"
SETTLE_S = 15.0  # for a server that was asked to stop; then it is killed
_POLL_S = 0.5
_ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception)\b: ")
# What a CPU server is not told otherwise: to use every core, and little of the memory. GPUs do not read these.
_CPU_DEFAULTS = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
# What tells a process its place among those that train together: a server is none of them.
_LAUNCHER = re.compile(
    r"((LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|(GROUP|ROLE|TORCHELASTIC|ACCELERATE|FSDP)_\w+)$"
)
# What the engine needs of a server: logprobs of the distribution that was sampled from; no defaults and end tokens out
# of the model's files; and for grammars the back end that the engine in this process uses too.
NEEDED = {
    "logprobs-mode": "processed_logprobs",
    "generation-config": "vllm",
    "structured-outputs-config": {"backend": "guidance"},
}

Arguments = Mapping[str, Any]


class ServerProcess:
    """A running server; its whole output goes to ``log``."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self._process, self.url, self.log = process, url, log
        self._swept = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> str | None:
        """Why it is gone, with its last word and where its log is; None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        self._sweep()
        return f"vllm serve ended ({code}): {_last_word(self.log)} (log: {self.log})"

    def close(self) -> None:
        """Stop it, with the processes that it started. Safe to repeat."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(SETTLE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(SETTLE_S)
        self._sweep()

    def _sweep(self) -> None:
        """Kill what it left behind, once: later the number of its group may be another's."""
        if self._swept:
            return
        self._swept = True
        with contextlib.suppress(ProcessLookupError):  # nothing is left
            os.killpg(self._process.pid, signal.SIGKILL)


def start_server(
    model: str, arguments: Arguments, *, deadline_s: float, variables: Mapping[str, str] | None = None
) -> ServerProcess:
    """Start a server of a model folder or hub id, and wait until it is ready.

    ``arguments`` are those of ``vllm serve``, without their dashes: true and false switch, a list repeats, a mapping is
    JSON. ``variables`` of its environment come beside this process's own. Raises UserError where vLLM is not installed,
    RunError where the server does not come up.
    """
    arguments = {"host": HOST, "port": _free_port(), **NEEDED, **arguments}
    log = Path(tempfile.mkstemp(prefix="callwright-vllm-", suffix=".log")[1])
    command = [*with_parent(), _executable(), "serve", model, *_flags(arguments)]
    inherited = {name: value for name, value in os.environ.items() if not _LAUNCHER.match(name)}
    environment = {**_CPU_DEFAULTS, "VLLM_NO_USAGE_STATS": "1", **inherited, **(variables or {})}
    if Path(model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    server = ServerProcess(process, f"http://{HOST}:{arguments['port']}", log)
    try:
        _wait_ready(server, deadline_s)
    except BaseException:
        server.close()
        raise
    return server


def _wait_ready(server: ServerProcess, deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while (ended := server.ended()) is None:
        try:
            if httpx.get(f"{server.url}/health", timeout=5.0, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass  # not yet
        if time.monotonic() > deadline:
            raise RunError(
                f"vllm serve was not ready within {deadline_s:g} s (engine.vllm.start_s); it last said: "
                f"{_last_word(server.log)} (log: {server.log})"
            )
        time.sleep(_POLL_S)
    raise RunError(ended)


def _executable() -> str:
    """The one that ``make vllm`` installed beside this environment, else the first on the PATH."""
    beside = Path(sys.prefix).parent / ".venv-vllm" / "bin" / "vllm"
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if found is None:
        raise UserError("engine.kind=vllm: vLLM is not installed; run make vllm, or name servers in engine.vllm.urls")
    return found


def _flags(arguments: Arguments) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, Mapping):
            flags += [f"--{name}", json.dumps(dict(value))]
        else:
            flags += [f"--{name}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return flags


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _last_word(log: Path) -> str:
    """The last line that names an error and not merely that there was one; else the last line."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line) and "See root cause above" not in line]
    return (errors or lines or ["nothing"])[-1][-500:]
