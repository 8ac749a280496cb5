"""The host's end of the sandbox in which Azurite and the Azure CLI run.

Invariants: the sandbox has a network of its own with nothing in it but Azurite, unless it is the live one; calls run
side by side, each with its own output; every wait has a deadline; once anything is in doubt the whole sandbox is killed
and never used again; kill is idempotent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from callwright.envs.executors.sandbox import Run, SandboxError
from callwright.envs.executors.sandbox.bubblewrap import Launcher
from callwright.envs.executors.sandbox.streams import CappedStream

ACCOUNTS = 2000  # of one Azurite: they are given to episodes once each, so a new one starts after so many
WARM_ACCOUNT = "warmup"  # where the zygote warms up; no episode gets it
START_S = 90.0
GRACE_S = 10.0  # the zygote keeps the wall limit itself; this much later it is taken for dead
SCRATCH_BYTES = 256 * 1024 * 1024
_HERE = Path(__file__).resolve().parent
# Places in the sandbox.
_TOOLS, _CODE, _SIGNED_IN = "/azure/tools", "/azure/code", "/azure/signed-in"
_AZURITE = "azurite/node_modules/azurite/dist/src/azurite.js"
_OPTIONS = ("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent")


@dataclass(frozen=True, slots=True)
class Installation:
    """What ``make azure`` has put on this machine."""

    folder: Path
    node: str

    @classmethod
    def find(cls, folder: Path) -> Installation | None:
        """None where something is missing."""
        folder, node = folder.resolve(), shutil.which("node")
        if node is None or not all((folder / part / ".ready").exists() for part in ("cli", "azurite")):
            return None
        return cls(folder, os.path.realpath(node))

    def mounts(self) -> dict[str, str]:
        """What has to be seen inside the sandbox besides the system's folders: there, and here. What may stand anywhere
        (the checkout) has a place of its own; the interpreters stay where they say that they are."""
        base = str(Path(os.path.realpath(self.folder / "cli/bin/python")).parents[1])
        node = str(Path(self.node).parents[1])
        own = {tree: tree for tree in (base, node) if tree != "/usr"}
        return {_TOOLS: str(self.folder), _CODE: str(_HERE), **own}


@dataclass(frozen=True, slots=True)
class Command:
    """What one child is to do. ``account`` is '' in a real subscription."""

    do: Literal["az", "fill", "read"]
    argv: tuple[str, ...]
    account: str
    wall_s: float
    output_bytes: int


class WarmCli:
    """One running sandbox. ``key`` is the secret of all its accounts, '' for the live one."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, key: str) -> None:
        self.key = key
        self.accounts = [f"episode{number:04d}" for number in range(ACCOUNTS)] if key else []
        self._process = process
        self._control = control
        self._number = 0
        self._running: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.alive = True

    @classmethod
    async def start(cls, installation: Installation, config_dir: Path | None = None) -> WarmCli:
        """With ``config_dir`` (a signed-in CLI's) the live one, without it the emulator's. Raises SandboxError."""
        live = config_dir is not None
        key = "" if live else base64.b64encode(secrets.token_bytes(32)).decode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        argv = [*_sandbox(installation, config_dir), f"{_TOOLS}/cli/bin/python", "-I", f"{_CODE}/zygote.py"]
        try:
            process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", env={}
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {argv[0]}: {error}") from error
        finally:
            theirs.close()
        cli = cls(process, ours, key)
        try:
            await cli._hello(installation, config_dir)
        except BaseException:
            cli.kill()
            raise
        asyncio.get_running_loop().add_reader(ours.fileno(), cli._hear)
        return cli

    async def _hello(self, installation: Installation, config_dir: Path | None) -> None:
        azurite = [installation.node, f"{_TOOLS}/{_AZURITE}", *_OPTIONS] if self.key else []
        config = {
            "azurite": azurite,
            "accounts": [WARM_ACCOUNT, *self.accounts],
            "key": self.key,
            "config_dir": "/scratch/.azure" if config_dir is None else _SIGNED_IN,
            "contents": f"{_CODE}/contents.py",
        }
        answer = b""
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            self._control.send(json.dumps(config).encode())
            try:
                async with asyncio.timeout(START_S):
                    answer = await asyncio.get_running_loop().sock_recv(self._control, 4096)
            except TimeoutError:
                raise SandboxError(f"the Azure CLI was not ready within {START_S:g} s") from None
        if not answer:
            _, stderr = await asyncio.to_thread(self._process.communicate, None, GRACE_S)
            lines = stderr.decode(errors="replace").strip().splitlines()
            raise SandboxError(f"the Azure CLI could not start: {lines[-1] if lines else 'no message'}")

    async def run(self, command: Command) -> Run:
        """One command to its end. Raises SandboxError when the sandbox ends under it; then this one is dead."""
        loop = asyncio.get_running_loop()
        self._number += 1
        number, begin = self._number, time.monotonic()
        with contextlib.ExitStack() as closing:
            streams, theirs = [], []
            for _ in range(2):
                read, write = os.pipe()
                closing.callback(os.close, read)
                theirs.append(write)
                # What does not fit is cut and counted, never a reason to kill: a listing may be long.
                streams.append(CappedStream(read, command.output_bytes, 1 << 62, lambda: None))
            done = self._running[number] = loop.create_future()
            closing.callback(self._running.pop, number, None)
            request = {"run": number, **dataclasses.asdict(command), "key": self.key}
            request["folder"] = f"/scratch/{command.account or 'live'}"
            try:
                self._send(json.dumps(request).encode(), theirs)
            finally:
                for fd in theirs:
                    os.close(fd)
            for stream in streams:
                loop.add_reader(stream.fd, _pump, loop, stream)
                closing.callback(loop.remove_reader, stream.fd)
            ended = await self._until(done, number, command.wall_s)
            for stream in streams:
                while stream.pump():
                    pass
        out, err = streams
        return Run(
            exit_code=ended["exit"],
            stdout=out.data,
            stderr=err.data,
            truncated=out.truncated or err.truncated,
            limit=f"time limit of {command.wall_s:g} s" if ended["killed"] == "time" else "",
            seconds=time.monotonic() - begin,
        )

    def _send(self, message: bytes, fds: list[int]) -> None:
        try:
            if not self.alive:
                raise OSError("it was ended")
            socket.send_fds(self._control, [message], fds)
        except OSError as error:
            self.kill()
            raise SandboxError(f"the Azure CLI's sandbox was gone: {error}") from error

    async def _until(self, done: asyncio.Future[dict[str, Any]], number: int, wall_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(wall_s + GRACE_S):
                return await done
        except TimeoutError:
            self.kill()
            raise SandboxError("the Azure CLI's sandbox fell silent") from None
        except asyncio.CancelledError:
            if self.alive:
                with contextlib.suppress(OSError):
                    self._control.send(json.dumps({"kill": number}).encode())
            raise

    def _hear(self) -> None:
        """One message of the zygote: a call's end, or its own."""
        try:
            message = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.kill()
            return
        answer: dict[str, Any] = json.loads(message)
        done = self._running.get(answer["done"])
        if done is not None and not done.done():
            done.set_result(answer)

    def kill(self) -> None:
        """End the sandbox and everything in it, now."""
        if not self.alive:
            return
        self.alive = False
        with contextlib.suppress(RuntimeError):  # no loop runs any more
            asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._process.kill()
        self._process.wait()  # SIGKILL to a process of ours: immediate
        if self._process.stderr is not None:
            self._process.stderr.close()
        for done in self._running.values():
            if not done.done():
                done.set_exception(SandboxError("the Azure CLI's sandbox ended"))


def _sandbox(installation: Installation, config_dir: Path | None) -> list[str]:
    """Bubblewrap's command line, up to the command."""
    extra = [argument for there, here in installation.mounts().items() for argument in ("--ro-bind", here, there)]
    if config_dir is not None:
        extra += ["--share-net", "--ro-bind", "/etc", "/etc", "--bind", str(config_dir), _SIGNED_IN]
    launcher = dataclasses.replace(Launcher.find(), nested=False, extra=tuple(extra))
    return launcher.wrapper(SCRATCH_BYTES)


def _pump(loop: asyncio.AbstractEventLoop, stream: CappedStream) -> None:
    stream.pump()
    if not stream.open:
        loop.remove_reader(stream.fd)
