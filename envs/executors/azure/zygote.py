"""The warm process inside the sandbox: runs Azurite, imports the Azure CLI once, forks one child a call.

The host starts this file with the CLI's own interpreter inside bubblewrap and talks to it over a SEQPACKET socket on
fd 0. Standard library and the CLI only.

Invariants:
- A call runs in a child of its own session; at its deadline, or at the host's word, everything in that session is
  killed, and only then is the call reported as done.
- A child has one account's credentials, an environment made here from nothing, and no standard input.
- When the host is gone this process ends, and bubblewrap's pid namespace takes Azurite and every child along.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

SCRATCH = "/scratch"
PORTS = {"Blob": 10000, "Queue": 10001, "Table": 10002}
START_S = 60.0
MIB = 1024 * 1024
LIMITS = {"RLIMIT_AS": 2048 * MIB, "RLIMIT_FSIZE": 16 * MIB, "RLIMIT_CPU": 60, "RLIMIT_CORE": 0}
# Commands that touch what every later call will need: their imports and tables are then there before the fork.
WARM = (
    ("storage", "container", "list"),
    ("storage", "queue", "list"),
    ("storage", "table", "list"),
)


def connection(account: str, key: str) -> str:
    """The connection string of one account of the emulator."""
    hosts = [f"{service}Endpoint=http://127.0.0.1:{port}/{account}" for service, port in PORTS.items()]
    return ";".join(("DefaultEndpointsProtocol=http", f"AccountName={account}", f"AccountKey={key}", *hosts))


def environment(config: str) -> dict[str, str]:
    """What every child sees, before its credentials."""
    settings = {
        "COLLECT_TELEMETRY": "no",
        "DISABLE_PROGRESS_BAR": "yes",
        "NO_COLOR": "yes",
        "ONLY_SHOW_ERRORS": "yes",
        "SURVEY_MESSAGE": "no",
        "DISABLE_CONFIRM_PROMPT": "yes",
    }
    plain = {"PATH": "/usr/bin:/bin", "HOME": SCRATCH, "TMPDIR": SCRATCH, "LANG": "C.UTF-8"}
    cli = {f"AZURE_CORE_{name}": value for name, value in settings.items()}
    return {**plain, **cli, "AZURE_CONFIG_DIR": config, "AZURE_LOGGING_ENABLE_LOG_FILE": "no"}


def start_azurite(argv: list[str], accounts: list[str], key: str) -> subprocess.Popen[bytes]:
    names = ";".join(f"{account}:{key}" for account in accounts)
    null = subprocess.DEVNULL
    environment = {"AZURITE_ACCOUNTS": names, "HOME": SCRATCH}
    return subprocess.Popen(argv, cwd=SCRATCH, env=environment, stdin=null, stdout=null, stderr=null)


def wait_for(azurite: subprocess.Popen[bytes]) -> None:
    """Until all three services listen."""
    deadline = time.monotonic() + START_S
    for port in PORTS.values():
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if azurite.poll() is not None:
                    raise RuntimeError(f"Azurite ended with exit code {azurite.returncode} at its start") from None
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Azurite did not listen within {START_S:g} s") from None
                time.sleep(0.02)


def az(argv: list[str]) -> int:
    """One command of the Azure CLI in this process; its exit code."""
    from azure.cli.core import get_default_cli

    return int(get_default_cli().invoke(argv) or 0)


@dataclass(slots=True)
class Child:
    """A call that runs."""

    number: int
    pid: int
    pidfd: int
    deadline: float
    killed: str = ""

    def kill(self, why: str) -> None:
        self.killed = self.killed or why
        for send in (os.kill, os.killpg):  # its session may not be there yet, or not any more
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, signal.SIGKILL)


class Zygote:
    def __init__(self, control: socket.socket, contents: str) -> None:
        self.control = control
        self.contents = runpy.run_path(contents) if contents else {}
        self.children: dict[int, Child] = {}  # by pidfd

    def serve(self, azurite: subprocess.Popen[bytes] | None) -> None:
        """Until the host closes the socket, or Azurite ends: without it no call can be answered."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        watched = os.pidfd_open(azurite.pid) if azurite is not None else -1
        if azurite is not None:
            poller.register(watched, select.POLLIN)
        while True:
            for fd, _ in poller.poll(self.patience()):
                if fd == watched:
                    return
                if fd in self.children:
                    poller.unregister(fd)
                    self.report(self.children.pop(fd))
                elif not self.take(poller):
                    return
            for child in self.children.values():
                if time.monotonic() >= child.deadline and not child.killed:
                    child.kill("time")

    def patience(self) -> float | None:
        """Milliseconds until the next deadline."""
        waiting = [child.deadline for child in self.children.values() if not child.killed]
        return max(0.0, min(waiting) - time.monotonic()) * 1000 + 1 if waiting else None

    def take(self, poller: select.poll) -> bool:
        """One message of the host. False: it is gone."""
        message, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 2)
        if not message:
            return False
        request: dict[str, Any] = json.loads(message)
        if "kill" in request:
            for child in self.children.values():
                if child.number == request["kill"]:
                    child.kill("host")
            return True
        pid = os.fork()
        if pid == 0:
            self.become(request, fds)
        for fd in fds:
            os.close(fd)
        child = Child(request["run"], pid, os.pidfd_open(pid), time.monotonic() + request["wall_s"])
        self.children[child.pidfd] = child
        poller.register(child.pidfd, select.POLLIN)
        return True

    def report(self, child: Child) -> None:
        """A child has ended: end what it left behind, then say so."""
        child.kill("left")
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        os.close(child.pidfd)
        killed = "" if child.killed == "left" else child.killed
        answer = {"done": child.number, "exit": status if status >= 0 else 128 - status, "killed": killed}
        self.control.send(json.dumps(answer).encode())

    def become(self, request: dict[str, Any], fds: list[int]) -> NoReturn:
        """In the child: the call itself."""
        code = 120
        try:
            os.setsid()
            out, err = fds
            os.dup2(out, 1)
            os.dup2(err, 2)
            self.control.close()
            for name, most in LIMITS.items():
                resource.setrlimit(getattr(resource, name), (most, most))
            os.makedirs(request["folder"], exist_ok=True)
            os.chdir(request["folder"])
            if request["key"]:
                os.environ["AZURE_STORAGE_CONNECTION_STRING"] = connection(request["account"], request["key"])
            code = self.run(request)
            sys.stdout.flush()
            sys.stderr.flush()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code & 0xFF)

    def run(self, request: dict[str, Any]) -> int:
        if request["do"] == "az":
            return az(request["argv"])
        self.contents[request["do"]](*request["argv"])  # fill or read
        return 0


def warm(key: str, account: str) -> None:
    """Run harmless commands here, on an account that no call is given, so that the children find all loaded."""
    os.environ["AZURE_STORAGE_CONNECTION_STRING"] = connection(account, key)
    for argv in WARM:
        if az([*argv, "--output", "none"]):
            raise RuntimeError(f"az {' '.join(argv)} failed at the start")
    del os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    gc.collect()  # closes these commands' connections: a child must not share one
    gc.freeze()


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    config = json.loads(control.recv(1 << 20))
    os.environ.clear()
    os.environ.update(environment(config["config_dir"]))
    Path(config["config_dir"]).mkdir(parents=True, exist_ok=True)
    azurite = None
    if config["azurite"]:
        azurite = start_azurite(config["azurite"], config["accounts"], config["key"])
    import azure.cli.core  # noqa: F401  # while Azurite starts

    if azurite is not None:
        wait_for(azurite)
        warm(config["key"], config["accounts"][0])
    control.send(json.dumps({"ready": True}).encode())
    Zygote(control, config["contents"]).serve(azurite)


if __name__ == "__main__":
    main()
