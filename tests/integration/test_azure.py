"""The azure executor on the real Azure CLI and the real Azurite: accounts apart, limits kept, nothing told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from callwright.envs.executors.azure import AzureExecutor
from callwright.envs.executors.azure.housekeeping import read_call
from callwright.envs.executors.azure.warm_cli import Installation
from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.sandbox import SandboxError
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import AzureSettings, ExecutorSettings
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.dispatcher import CallStatus

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

FOLDER = AzureSettings().folder
SECRET = "planted-secret-0123456789"
CREATE = "az storage container create --name box --output none"
LIST = "az storage container list --query [].name --output tsv"


def az(command: str) -> ToolCall:
    return ToolCall("azure", {"azure_command": command})


async def started(**settings: Any) -> AzureExecutor:
    """An executor of a test's own, or a skip with the reason."""
    if Installation.find(FOLDER) is None:
        pytest.skip("no Azure CLI and Azurite here: make azure")
    made = AzureExecutor(AzureSettings(**settings))
    try:
        await made.start()
    except ExecutorUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")
    return made


@pytest.fixture(scope="module")
def planted() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    for name in ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"):
        patch.setenv(name, SECRET)
    yield
    patch.undo()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(planted: None) -> AsyncIterator[AzureExecutor]:
    made = await started()
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(executor: AzureExecutor) -> AsyncIterator[Executors]:
    async with Executors(ExecutorSettings(tools=("azure",)), executors={"azure": executor}) as made:
        yield made


async def said(executor: AzureExecutor, lane: str, command: str) -> dict[str, Any]:
    return dict(await executor.run_in(lane, az(command)))


async def test_a_command_has_the_record_of_a_program(executor: AzureExecutor) -> None:
    assert executor.name == "azure/azurite"
    assert await said(executor, "shape", CREATE) == {"type": "azure", "status": "ok", "exit_code": 0, "stdout": ""}
    again = await said(executor, "shape", "az storage container show --name nobody")
    assert (again["status"], again["exit_code"], again["stdout"]) == ("error", 3, "")
    assert "ContainerNotFound" in again["stderr"]
    refused = await said(executor, "shape", "az login")
    assert (refused["status"], refused["exit_code"]) == ("error", 2)
    assert refused["stderr"].startswith(
        "refused: az login is not available; there are commands of az storage container"
    )


async def test_files_live_in_the_episodes_own_folder(executor: AzureExecutor) -> None:
    for command in (
        CREATE,
        "az storage blob upload -c box -n a --data hello --output none",
        "az storage blob download -c box -n a --file kept.txt --output none",
        "az storage blob upload -c box -n b --file kept.txt --output none",
    ):
        assert (await said(executor, "files", command))["status"] == "ok"
    assert (await said(executor, "files", "az storage blob download -c box -n b"))["stdout"] == "hello"
    other = await said(executor, "files-2", "az storage blob upload -c box -n b --file kept.txt")
    assert other["status"] == "error"


async def test_episodes_see_nothing_of_each_other(service: Executors) -> None:
    with service.episode() as one, service.episode() as two:
        assert (await one(az(CREATE))).status is CallStatus.OK
        assert json.loads((await one(az(LIST))).record)["stdout"] == "box\n"
        assert json.loads((await two(az(LIST))).record)["stdout"] == ""
    for _ in range(3):  # the lanes go on, and what was in them does not
        assert json.loads((await service.call(az(LIST))).record)["stdout"] == ""


async def test_calls_of_one_turn_run_in_the_order_they_were_made(service: Executors) -> None:
    with service.episode() as call:
        await call(az("az storage queue create --name line --output none"))
        puts = [az(f"az storage message put -q line --content {number} --output none") for number in range(4)]
        replies = await asyncio.gather(*map(call, puts))
        assert {reply.status for reply in replies} == {CallStatus.OK}
        peek = az("az storage message peek -q line --num-messages 9 --query [].content --output tsv")
        assert json.loads((await call(peek)).record)["stdout"].split() == ["0", "1", "2", "3"]


async def test_the_environments_commands_are_not_the_models(executor: AzureExecutor) -> None:
    """Neither in an episode that was not filled, nor with another token in one that was."""
    token = "0" * 32
    assert (await said(executor, "own", f"callwright read {token}"))["status"] == "error"
    assert (await said(executor, "own", LIST))["status"] == "ok"
    seed = {"containers": {"box": {"metadata": {}, "blobs": {}}}, "queues": {}, "tables": {}}
    fill = f"callwright fill {token} {json.dumps(seed)}"
    assert (await said(executor, "own", fill))["stderr"] == "refused: a command begins with az\n"
    assert (await said(executor, "own-2", fill))["status"] == "ok"
    assert (await executor.run_in("own-2", read_call()))["status"] == "error"
    held = json.loads((await said(executor, "own-2", f"callwright read {token}"))["stdout"])
    assert held == seed


async def test_no_secret_is_told(executor: AzureExecutor) -> None:
    """What the machine knows is not in the sandbox; the account's own key, written by hand, is not in a record."""
    key = executor._clis[-1].key
    heard = [
        await said(executor, "secrets", command)
        for command in (
            CREATE,
            f"az storage blob upload -c box -n a --data {key}",
            "az storage blob download -c box -n a",
            "az storage container show --name box",
            "az storage container show --name nobody",
            f"az storage container show --name {key[:20]}",
            "az storage blob list -c box --output yaml",
        )
    ]
    text = json.dumps(heard)
    assert SECRET not in text
    assert key not in text
    assert heard[2]["stdout"] == "[hidden]"


async def test_output_is_cut_and_says_so() -> None:
    executor = await started(output_kb=1)
    try:
        for name in ("box", "box-two", "box-three", "box-four"):
            await said(executor, "a", CREATE.replace("box", name))
        record = await said(executor, "a", "az storage container list --output json")
        assert (record["status"], record["truncated"], len(record["stdout"])) == ("ok", True, 1024)
    finally:
        await executor.close()


async def test_accounts_run_out_and_another_azurite_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old episodes keep theirs for one change more; then their account is gone, and they get no other."""
    monkeypatch.setattr("callwright.envs.executors.azure.warm_cli.ACCOUNTS", 2)
    executor = await started()
    try:
        assert (await said(executor, "0", CREATE))["status"] == "ok"
        for lane in ("1", "2"):
            assert (await said(executor, lane, LIST))["stdout"] == ""
        assert (await said(executor, "0", LIST))["stdout"] == "box\n"
        for lane in ("3", "4"):
            assert (await said(executor, lane, LIST))["stdout"] == ""
        with pytest.raises(SandboxError, match="was gone"):
            await said(executor, "0", LIST)
    finally:
        await executor.close()


async def test_a_dead_azurite_is_our_fault_and_the_next_episode_has_a_new_one() -> None:
    executor = await started()
    try:
        await said(executor, "a", CREATE)
        os.kill(_azurite(executor), signal.SIGKILL)
        with pytest.raises(SandboxError):
            await said(executor, "a", LIST)
        assert (await said(executor, "b", LIST))["status"] == "ok"
        with pytest.raises(SandboxError):
            await said(executor, "a", LIST)
    finally:
        await executor.close()


async def test_a_silent_azurite_is_our_fault_and_the_call_is_ended() -> None:
    executor = await started(timeout_s=2.0)
    try:
        await said(executor, "a", CREATE)
        os.kill(_azurite(executor), signal.SIGSTOP)
        with pytest.raises(SandboxError, match="Azurite does not answer"):
            await said(executor, "a", LIST)
    finally:
        await executor.close()


async def test_the_time_limit_of_a_command_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = await started(timeout_s=0.001)
    monkeypatch.setattr(executor, "_answers", _yes)
    try:
        record = await said(executor, "a", LIST)
        assert (record["status"], record["message"]) == ("limit", "killed: time limit of 0.001 s")
    finally:
        await executor.close()


async def test_everything_ends_with_the_executor() -> None:
    executor = await started()
    azurite = _azurite(executor)
    await executor.close()
    await executor.close()
    async with asyncio.timeout(20):
        while Path(f"/proc/{azurite}").exists():
            await asyncio.sleep(0.02)


async def test_live_needs_a_sign_in_and_uses_no_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path))
    executor = await started(allow_live=True, resource_group="mine")
    try:
        assert executor.name == "azure/live"
        assert "az login" in (await said(executor, "a", "az group show --name mine"))["stderr"]
        assert (
            "refused: only the resource group mine" in (await said(executor, "a", "az group show -n other"))["stderr"]
        )
        assert "refused" in (await said(executor, "a", LIST))["stderr"]
    finally:
        await executor.close()


async def _yes(cli: Any) -> bool:
    return True


def _azurite(executor: AzureExecutor) -> int:
    """The process id of this executor's Azurite, found among the descendants of its sandbox."""
    below = [executor._clis[-1]._process.pid]
    while below:
        pid = below.pop()
        if (
            b"azurite.js" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and b"node" in Path(f"/proc/{pid}/comm").read_bytes()
        ):
            return pid
        below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    raise AssertionError("no Azurite runs below the executor's sandbox")
