"""What of the azure tool needs no `make azure`: its config; without the tool, a fault of ours and no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from callwright.envs.executors.azure import AzureExecutor
from callwright.envs.executors.azure.executor import NOT_CONFIGURED
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import AzureSettings, ExecutorSettings
from callwright.envs.rewards import GradingFault, set_up
from callwright.envs.tasks import FamilySpec, WorldSpec, build_suite
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.scripts.train import train
from callwright.serving.protocol.values import ToolCall
from callwright.training.config import load_config
from callwright.training.in_flight import at_once

pytestmark = pytest.mark.integration


def test_the_shipped_config_asks_about_storage_alone_and_takes_no_more_lanes_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("azure")
    assert set(config.tasks.families) == set(AZURE_FAMILIES)
    assert config.tools == ("azure",)
    assert at_once(config, 1000) == config.executors.lanes
    train(["azure"], dry_run=True)
    said = capsys.readouterr()
    shown = tmp_path / "shown.yaml"
    shown.write_text(said.out)
    assert load_config(shown) == config
    assert "a batch: 4 groups x 4 = 16 rollouts" in said.out


async def test_without_an_installation_every_call_is_an_infra_fault(tmp_path: Path) -> None:
    call = ToolCall("azure", {"azure_command": "az storage container list"})
    executor = AzureExecutor(AzureSettings(folder=tmp_path))
    await executor.start()
    record = await executor.run_in("a", call)
    assert record == {
        "type": "azure",
        "status": "infra_fault",
        "executor": "azure/none",
        "message": NOT_CONFIGURED,
    }
    await executor.close()


async def test_without_azure_a_task_is_our_fault_not_the_policys(tmp_path: Path) -> None:
    suite = build_suite(
        {"azure_create": FamilySpec()}, WorldSpec(entities=300, eval_entities=100, long_entities=40), seed=3
    )
    task = suite.task("azure_create/train/check/0")
    settings = ExecutorSettings(tools=("azure",), per_tool={"azure": AzureSettings(folder=tmp_path)})
    async with Executors(settings) as service:
        with service.episode() as call, pytest.raises(GradingFault, match="make azure"):
            await set_up(task, call)
