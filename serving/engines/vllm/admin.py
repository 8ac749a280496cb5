"""The side of a vLLM server that training needs: pausing, new weights, and questions to its workers.

Every call has a deadline and ends in an answer or an EngineError that names the server. The server must have been
started with ``VLLM_SERVER_DEV_MODE=1`` and, for ``callwright_*`` calls, with ``EXTENSION``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.vllm.client import IDLE_S

EXTENSION = "callwright.serving.engines.vllm.extension.WeightExtension"
_SAID_CHARS = 300  # of an error, in our own message


class Admin:
    """One server, from any one thread. ``timeout_s`` is the deadline of each call, in seconds."""

    def __init__(self, url: str, timeout_s: float = 300.0) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(keepalive_expiry=IDLE_S),
        )

    def close(self) -> None:
        self._http.close()

    def pause(self) -> None:
        """Stop between two tokens; turns in flight keep their place and their cache."""
        self._post("/pause", params={"mode": "keep"})

    def resume(self) -> None:
        self._post("/resume")

    def ask_workers(self, method: str, **arguments: str) -> list[Any]:
        """Call a method of every worker; their answers in order of rank."""
        answer = self._post("/collective_rpc", json={"method": method, "kwargs": arguments})
        results: list[Any] = answer["results"]
        return results

    def set_version(self, version: int) -> None:
        self._post("/update_weight_version", json={"new_version": str(version)})

    def version(self) -> int | None:
        """The version of the weights that were sent; None for a server that was sent none since it started."""
        said = str(self._request("GET", "/weight_info")["weight_version"])
        return int(said) if said.isdecimal() else None

    def world_size(self) -> int:
        """How many workers it has, over all of its parallel dimensions."""
        return int(self._request("GET", "/get_world_size")["world_size"])

    def load_adapter(self, name: str, folder: str) -> None:
        """Serve the LoRA adapter in a folder under this model name, in the place of the one before."""
        self._post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": folder, "load_inplace": True})

    def sampled(self, ids: Sequence[int], tokens: int, model: str | None = None) -> tuple[list[int], list[float]]:
        """So many ids sampled after a prompt, with the logprob of each in nats. ``model``: by default the first.

        It is the way that every turn takes. vLLM 0.31 dies when it is asked for the logprobs of a prompt while it can
        serve adapters and other turns run.
        """
        model = model or self._request("GET", "/v1/models")["data"][0]["id"]
        asked = {"prompt": list(ids), "max_tokens": tokens, "temperature": 1.0, "seed": 0, "ignore_eos": True}
        told = {"logprobs": 0, "return_token_ids": True}
        choice = self._post("/v1/completions", json={"model": model, **asked, **told})["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def _post(self, path: str, **content: Any) -> Any:
        return self._request("POST", path, **content)

    def _request(self, method: str, path: str, **content: Any) -> Any:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise EngineError(f"{self.url}{path}: {type(error).__name__}: {error}") from error
        if answer.status_code >= 400:
            raise EngineError(f"{self.url}{path}: {answer.status_code}: {answer.text[:_SAID_CHARS].strip()}")
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if is_json else None
