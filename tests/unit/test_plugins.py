"""Modules of a user's own: what they declare is there for the config, and every mistake is one line."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from callwright.envs.executors.registry import TOOLS, known_tools
from callwright.envs.executors.service import Executors
from callwright.envs.plugins import load_plugins
from callwright.envs.registry import Registry
from callwright.envs.rewards.registry import REWARDS
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.registry import FAMILIES
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus
from callwright.training.benchmark_check import check_benchmarks
from callwright.training.config import ConfigError, dump_config, load_config
from callwright.training.executor_settings import executor_settings

pytestmark = pytest.mark.unit

TABLES: dict[str, Registry[Any]] = {
    "TOOLS": TOOLS,
    "FAMILIES": FAMILIES,
    "REWARDS": REWARDS,
    "BENCHMARKS": BENCHMARKS,
}

DOUBLER = '''
from pydantic import Field

from callwright.envs.executors.executor import record_of
from callwright.envs.executors.tool_kind import ToolKind, ToolSettings
from callwright.envs.rewards import RewardFunction
from callwright.envs.tasks.family import Dials, Family, Row
from callwright.envs.tasks.task import Step
from callwright.serving.protocol import Tool
from callwright.serving.queues.reply import CallStatus

SCHEMA = {
    "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False
}

class DoublerSettings(ToolSettings):
    """The doubler."""

    factor: int = Field(default=2, gt=0)
    """What is multiplied with."""

class Doubler:
    name = "doubler/own"
    def __init__(self, settings):
        self.settings = settings
    async def start(self): ...
    async def close(self): ...
    async def run(self, call):
        return record_of(call, CallStatus.OK, y=self.settings.factor * call.arguments["x"])

class Nothing(RewardFunction):
    """Nothing."""
    def parts(self, evidence, correct):
        return {}

class Off(Dials):
    """How wrong its gold answers are."""
    by: int = 0

class Doubles(Family[Off]):
    dials_type = Off
    tools = ("doubler",)
    def row(self, draw):
        x = draw.rng.randrange(1000, 9000)
        plan = (Step("doubler", {"x": x}),)
        return Row(f"twice {x}?", str(2 * x + self.dials.by), "twice", plan, content=str(x))

DOUBLE = ToolKind(Tool("doubler", "Double x.", SCHEMA), lambda settings, documents: Doubler(settings), DoublerSettings)
TOOLS = {"doubler": DOUBLE}
REWARDS = {"nothing": Nothing}
FAMILIES = {"doubles": Doubles}
'''


@pytest.fixture(autouse=True)
def registries() -> Any:
    """What a test declares goes with it."""
    from callwright.envs import plugins

    before = {name: dict(table) for name, table in TABLES.items()}
    loaded = dict(plugins._loaded)
    yield
    for name, table in TABLES.items():
        table._entries = before[name]
    plugins._loaded.clear()
    plugins._loaded.update(loaded)


def write(folder: Path, text: str, plugin: str = DOUBLER) -> Path:
    (folder / "doubler.py").write_text(dedent(plugin))
    path = folder / "c.yaml"
    path.write_text(f"extends: quickstart\nplugins: [doubler.py]\n{text}")
    return path


async def test_a_tool_of_ones_own_is_configured_and_runs_as_the_shipped_ones_do(tmp_path: Path) -> None:
    path = write(tmp_path, "tools: [doubler]\nexecutors: {doubler: {factor: 3, workers: 1}}\nreward: {name: nothing}\n")
    config = load_config(path, ["executors.doubler.timeout_s=7.5"])
    assert config.executors.of("doubler").model_dump() == {"workers": 1, "timeout_s": 7.5, "factor": 3}
    assert known_tools()[-1].name == "doubler"
    async with Executors(executor_settings(config, config.tools)) as executors:
        reply = await executors.call(ToolCall("doubler", {"x": 7}))
        refused = await executors.call(ToolCall("doubler", {"x": "7"}))
    assert (reply.status, reply.record) == (CallStatus.OK, b'{"type":"doubler","status":"ok","y":21}')
    assert refused.status is CallStatus.REJECTED


def test_the_check_runs_the_gold_calls_of_a_family(tmp_path: Path) -> None:
    words = ["eval.benchmark=[doubles]", "eval.limit=3"]
    assert check_benchmarks(load_config(write(tmp_path, ""), words)) == {"doubles": []}
    wrong = load_config(write(tmp_path, "tasks: {families: {doubles: {dials: {by: 1}}}}\n"), words)
    (failures,) = check_benchmarks(wrong).values()
    assert len(failures) == 3
    assert "the last gold observation does not contain" in failures[0]


def test_a_config_holds_the_whole_path_and_loads_again_from_a_run_folder(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "tools: [doubler]\n"))
    assert config.plugins == (str(tmp_path / "doubler.py"),)
    assert config.executors.of("doubler").workers == 8
    run = tmp_path / "runs" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(dump_config(config))
    assert load_config(run) == config


def test_a_run_folder_brings_no_code_of_its_own(tmp_path: Path) -> None:
    run = tmp_path / "stranger"
    run.mkdir()
    (run / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for name in ("evil.py", str(run / "evil.py"), "../stranger/evil.py"):
        (run / "config.yaml").write_text(f"extends: quickstart\nplugins: [{name}]\n")
        with pytest.raises(UserError, match="a run's config"):
            load_config(run)
    assert not (tmp_path / "ran").exists()


def test_a_module_of_the_python_path_is_named_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_doubler.py").write_text(DOUBLER.replace("doubler", "own_doubler"))
    assert load_config("quickstart", ["plugins=[own_doubler]"]).plugins == ("own_doubler",)
    assert "own_doubler" in TOOLS
    sys.modules.pop("own_doubler")


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        ("x = 1", "doubler.py declares none of TOOLS, FAMILIES, REWARDS, BENCHMARKS"),
        ("x = 1\ny = x +", "doubler.py cannot be loaded: SyntaxError"),
        ("x = 1\n\nz = 1 / 0", "doubler.py:3: ZeroDivisionError: division by zero"),
        ("import no_such_library", "No module named 'no_such_library'"),
        ("TOOLS = ['doubler']", "TOOLS is a mapping of names, not a list"),
        ("TOOLS = {'doubler': 1}", "TOOLS['doubler'] is no ToolKind of that name"),
        ("FAMILIES = {'a': int}", "FAMILIES['a'] is no subclass of Family of that name"),
        (f"{DOUBLER}\nTOOLS = {{'tripler': DOUBLE}}", "TOOLS['tripler'] is no ToolKind of that name"),
        (f"{DOUBLER}\nREWARDS = {{'exact': Nothing}}", "there is a reward function exact already"),
    ],
)
def test_a_module_that_cannot_be_used_is_one_line_and_adds_nothing(plugin: str, says: str, tmp_path: Path) -> None:
    before = {name: list(table) for name, table in TABLES.items()}
    with pytest.raises(UserError) as caught:
        load_config(write(tmp_path, "", plugin))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {name: list(table) for name, table in TABLES.items()} == before


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("plugins=[nowhere.py]", "plugins: no file nowhere.py; looked for"),
        ("plugins=doubler.py", "plugins should be a valid tuple"),
        ("executors.dubler.workers=2", "unknown key executors.dubler; did you mean executors.doubler?"),
        ("executors.doubler.faktor=2", "unknown key executors.doubler.faktor; did you mean executors.doubler.factor?"),
        ("executors.doubler.factor=0", "executors.doubler.factor should be greater than 0, not 0"),
        ("executors.external=[dubler]", "external: no tool dubler; did you mean doubler?"),
        ("reward.name=nothin", "no reward function nothin; did you mean nothing?"),
    ],
)
def test_mistakes_are_one_line(override: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_config(write(tmp_path, ""), [override])
    assert says in str(caught.value)


def test_a_name_is_declared_once() -> None:
    table = Registry("thing", {"a": 1})
    with pytest.raises(ValueError, match="a thing a already"):
        table.add({"b": 2, "a": 3})
    assert dict(table) == {"a": 1}
    assert table.missing("c") == "no thing c; there are a"


def test_unknown_tools_stay_unknown_without_the_module() -> None:
    assert load_plugins((), Path("c.yaml")) == ()
    with pytest.raises(ConfigError, match=r"unknown key executors\.doubler"):
        load_config("quickstart", ["executors.doubler.workers=2"])
