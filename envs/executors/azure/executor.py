"""The ``azure`` tool: one Azure CLI command a call, in an account that belongs to the call's episode alone.

Invariants: an account is given out once; an episode whose account is gone (its Azurite ended) gets infra faults, never
another account; a command that is not on the list does not reach the CLI; no secret is in any record.

An executor keeps its accounts to itself: one azure worker serves the queue, or an episode would see half of its own
deeds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from callwright.envs.executors.azure.allowed import LIVE
from callwright.envs.executors.azure.command_line import Refused, read_command
from callwright.envs.executors.azure.housekeeping import Housekeeping, housekeeping
from callwright.envs.executors.azure.warm_cli import WARM_ACCOUNT, Command, Installation, WarmCli
from callwright.envs.executors.code import record_of_run
from callwright.envs.executors.executor import ExecutorUnavailable, Record, record_of
from callwright.envs.executors.sandbox import Run, SandboxError
from callwright.envs.executors.settings import AzureSettings
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

NOT_CONFIGURED = "azure is not configured here; run: make azure"
STATE_BYTES = 4 * 1024 * 1024  # of what an account holds, as JSON
_HIDDEN = b"[hidden]"


@dataclass(frozen=True, slots=True)
class Space:
    """What belongs to one episode. ``token`` opens it to the environment's own commands; '' to nobody."""

    cli: WarmCli
    account: str
    token: str = ""


class AzureExecutor:
    """Answers in the shape of the code executor's records."""

    def __init__(self, settings: AzureSettings | None = None) -> None:
        self._settings = settings or AzureSettings()
        self._installation: Installation | None = None
        self._clis: list[WarmCli] = []  # the current one last; the one before it serves its episodes on
        self._accounts: Iterator[str] = iter(())
        self._spaces: dict[str, Space] = {}  # never dropped: a late call of an old episode must find that it is old
        self._growing = asyncio.Lock()

    @property
    def name(self) -> str:
        if self._installation is None:
            return "azure/none"
        return "azure/live" if self._settings.allow_live else "azure/azurite"

    async def start(self) -> None:
        self._installation = Installation.find(self._settings.folder)
        if self._installation is None:
            return
        try:
            await self._grow(self._installation)
        except SandboxError as error:
            raise ExecutorUnavailable(f"azure: {error}") from error

    async def run_in(self, lane: str, call: ToolCall) -> Record:
        if self._installation is None:
            return record_of(call, CallStatus.INFRA_FAULT, executor=self.name, message=NOT_CONFIGURED)
        text = call.arguments["azure_command"]
        space = self._spaces.get(lane)
        own = housekeeping(text)
        if own is not None and own.do == "fill" and space is None:
            space = await self._open(lane, self._installation, own.token)
        elif own is not None and (space is None or own.token != space.token):
            own = None  # not the environment's: a text like any other
        try:
            command = self._housework(own) if own is not None else self._models(text)
        except Refused as refused:
            return record_of_run(call, Run(2, b"", f"refused: {refused}\n".encode()))
        space = space or await self._open(lane, self._installation)
        run = await space.cli.run(dataclasses.replace(command, account=space.account))
        if run.limit and (own is not None or not await self._answers(space.cli)):
            space.cli.kill()
            raise SandboxError(f"{run.limit}, and Azurite does not answer")
        return record_of_run(call, _hide(run, space.cli.key))

    async def _answers(self, cli: WarmCli) -> bool:
        """Whether the emulator is well: otherwise a command's time limit is not the model's doing."""
        if self._settings.allow_live:
            return True
        probe = Command("az", ("storage", "container", "list"), WARM_ACCOUNT, self._settings.timeout_s, 1024)
        return not (await cli.run(probe)).limit

    def _models(self, text: str) -> Command:
        """The model's command. Raises Refused."""
        settings = self._settings
        group = settings.resource_group
        argv = read_command(text) if group is None else read_command(text, LIVE, group)
        return Command("az", argv, "", settings.timeout_s, settings.output_kb * 1024)

    def _housework(self, own: Housekeeping) -> Command:
        if self._settings.allow_live:
            raise Refused("a real subscription is neither filled nor read as a whole")
        argv = (own.seed,) if own.do == "fill" else ()
        return Command(own.do, argv, "", self._settings.timeout_s, STATE_BYTES)

    async def _open(self, lane: str, installation: Installation, token: str = "") -> Space:
        """A new episode's space: the next account that nobody had."""
        async with self._growing:
            account = next(self._accounts, None) if self._clis and self._clis[-1].alive else None
            if account is None:
                await self._grow(installation)
                account = next(self._accounts)
            space = self._spaces[lane] = Space(self._clis[-1], account, token)
            return space

    async def _grow(self, installation: Installation) -> None:
        """Start another Azurite. The one before stays for its episodes, the one before that ends."""
        live = _config_dir() if self._settings.allow_live else None
        self._clis.append(await WarmCli.start(installation, live))
        for old in self._clis[:-2]:
            old.kill()
        self._clis = self._clis[-2:]
        self._accounts = iter(self._clis[-1].accounts) if live is None else _live_accounts()

    async def close(self) -> None:
        for cli in self._clis:
            cli.kill()
        self._clis, self._spaces = [], {}


def _config_dir() -> Path:
    """Where the person who allowed it is signed in."""
    return Path(os.environ.get("AZURE_CONFIG_DIR", "~/.azure")).expanduser().resolve()


def _live_accounts() -> Iterator[str]:
    while True:
        yield ""


def _hide(run: Run, secret: str) -> Run:
    """The run without the accounts' key, in case a command finds a way to print it."""
    if not secret:
        return run
    out, err = run.stdout, run.stderr
    for spelling in (secret.encode(), quote(secret, safe="").encode()):
        out, err = out.replace(spelling, _HIDDEN), err.replace(spelling, _HIDDEN)
    return dataclasses.replace(run, stdout=out, stderr=err)
