"""``engine.kind: vllm`` from the config: what is refused, and what is passed to the server."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from vllm_servers import Stub, stub

from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.errors import RunError, UserError
from callwright.training.config import load_config
from callwright.training.engines import configured_engine

pytestmark = pytest.mark.integration

ECHO = """#!{python}
import json, sys
print("loading")
print("ValueError: it does not fit")
print("RuntimeError: Engine core initialization failed. See root cause above.")
json.dump(sys.argv[1:], open({where!r}, "w"))
sys.exit(3)
"""


def configured(*words: str) -> object:
    return configured_engine(load_config("quickstart", ["model.path=quickstart", "engine.kind=vllm", *words])).engine


def test_what_cannot_be_is_a_users_error() -> None:
    with pytest.raises(UserError, match=r"engine\.vllm\.urls: http://127\.0\.0\.1:9: "):
        configured("engine.vllm.urls=[http://127.0.0.1:9]")
    with pytest.raises(UserError, match="deterministic: "):
        configured("deterministic=true")
    with pytest.raises(UserError, match=r"engine\.vllm\.urls"):
        configured("engine.vllm.urls=[localhost:8000]")


def test_servers_are_joined() -> None:
    servers = [Stub(), Stub()]
    with stub(*servers):
        engine = configured(f"engine.vllm.urls=[{servers[0].url},{servers[1].url}]")
        assert isinstance(engine, VllmEngine)
        assert engine.context == 64
        engine.close()
        engine.close()  # safe to repeat


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without vLLM, with a PATH of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    setpriv = shutil.which("setpriv")
    if setpriv:
        (tmp_path / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_vllm_the_command_that_installs_it_is_named(elsewhere: Path) -> None:
    with pytest.raises(UserError, match="run make vllm"):
        configured()


def test_a_server_that_dies_at_its_start_is_a_run_error_with_its_last_word(elsewhere: Path) -> None:
    told = elsewhere / "arguments.json"
    vllm = elsewhere / "vllm"
    vllm.write_text(ECHO.format(python=sys.executable, where=str(told)))
    vllm.chmod(0o755)
    with pytest.raises(RunError, match=r"vllm serve ended \(3\): ValueError: it does not fit \(log: .*\.log\)"):
        configured("engine.vllm.arguments={dtype: bfloat16, enforce-eager: true, lora: false, load: [a, b]}")
    words = json.loads(told.read_text())
    assert words[0] == "serve"
    text = " ".join(words)
    assert "--logprobs-mode processed_logprobs" in text
    assert "--max-model-len 640" in text
    assert "--host 127.0.0.1" in text
    assert '--structured-outputs-config {"backend": "guidance"}' in text
    assert "--dtype bfloat16" in text
    assert "float32" not in text
    assert "--enforce-eager --no-lora --load a b" in text
