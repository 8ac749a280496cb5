"""What an attack on the sandbox is, and the world outside in which its effect shows.

Invariant: an effect is seen here, in a file, a process, a socket, a counter or a secret that got out; never in what the
program says of itself. Everything that an attack may hit is thrown away with the world.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pty
import secrets
import shlex
import signal
import socket
import stat
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SECRET = "CALLWRIGHT_PLANTED"


@dataclass(frozen=True)
class Attack:
    """One program. ``@name@`` in it stands for a value of the world; ``then`` is run after it, in the same place.

    ``bare`` says why the attack is not shown without the sandbox, or ''; ``root`` that only root succeeds so;
    ``inside`` is a command that gives it a namespace of its own there.
    """

    name: str
    program: str
    seen: Callable[[World], bool]
    bare: str = ""
    root: bool = False
    inside: str = ""
    then: str = ""
    nested_only: str = ""
    grouped_only: str = ""


def python(source: str) -> str:
    """The program in Python, with the world's mark as its last argument."""
    return f"python3 -c {shlex.quote(source)} @mark@"


def in_process(source: str) -> str:
    """The program in Python, in the form that the sandbox runs without a shell, in its zygote's own child."""
    assert "'" not in source
    return f"python3 -c '{source}'"


class World:
    """A folder open to everybody, a victim process, listening sockets, a secret; all new, all thrown away."""

    def __init__(self) -> None:
        self.mark = (
            f"{secrets.randbelow(10**6) + 10**4}.{os.getpid()}"  # also a number of seconds that no one else sleeps
        )
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="attacked-"))
        self.cwd = Path(tempfile.mkdtemp(prefix="attacker-"))
        self.said = b""
        self.then_said = b""
        self.exit_code = 0
        self.returned = False
        self.contacts = 0
        self.keys = b""
        self.signals = 0
        self._closing = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        self.folder.chmod(0o777)
        (self.folder / "kept").write_text(self.secret)
        (self.folder / "kept").chmod(0o666)
        self.kept = open(self.folder / "kept", "a")  # noqa: SIM115 - closed with the world
        os.set_inheritable(self.kept.fileno(), True)
        self.handle = _handle(self.folder / "kept")
        os.environ[SECRET] = self.secret
        self.victim = subprocess.Popen(["sleep", "1000"], cwd=self.folder)
        self.terminal, self._terminal_end = pty.openpty()
        os.set_blocking(self.terminal, False)
        await self._listen()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._signalled)
        self.before = self._look()
        self.counters = self.machine()
        return self

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.servers = [
            await asyncio.start_server(self._contact, "127.0.0.1", 0),
            await asyncio.start_unix_server(self._contact, self.folder / "socket"),
            await asyncio.start_unix_server(self._contact, f"\0{self.mark}"),
        ]
        self.tcp = self.servers[0].sockets[0].getsockname()[1]
        self.tcp6 = 1
        with contextlib.suppress(OSError):
            server = await asyncio.start_server(self._contact, "::1", 0)
            self.servers.append(server)
            self.tcp6 = server.sockets[0].getsockname()[1]
        os.chmod(self.folder / "socket", 0o777)
        self.datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), ("127.0.0.1", 0))
        self.udp = self.datagrams.get_extra_info("sockname")[1]
        self._whisper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._whisper.bind(("127.0.0.1", 0))
        self.free = self.udp  # as a TCP port nobody's, so that a program can take it

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
        for server in self.servers:
            server.close()
        self.datagrams.close()
        for fd in (self.terminal, self._terminal_end):
            os.close(fd)
        self._whisper.close()
        self.kept.close()
        del os.environ[SECRET]
        with contextlib.suppress(ProcessLookupError):
            self.victim.kill()
        self.victim.wait()
        subprocess.run(["rm", "-rf", self.folder, self.cwd, f"/dev/shm/{self.mark}"], check=True)

    def fill(self, program: str) -> str:
        """``program`` with the world's values in it; the secret is not one of them."""
        values = {
            "folder": self.folder,
            "mark": self.mark,
            "victim": self.victim.pid,
            "tcp": self.tcp,
            "tcp6": self.tcp6,
        }
        values |= {"udp": self.udp, "free": self.free, "terminal": os.ttyname(self._terminal_end), "key": self.key}
        values["handle"] = self.handle.hex()
        for name, value in values.items():
            program = program.replace(f"@{name}@", str(value))
        return program

    @property
    def key(self) -> int:
        """The mark as the key of a System V object."""
        return int(float(self.mark)) * 1000

    def _signalled(self) -> None:
        self.signals += 1

    def _contact(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.contacts += 1
        writer.close()

    def _look(self) -> dict[str, tuple[int, bytes]]:
        return {
            path.name: (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in self.folder.iterdir()
        }

    # What can be seen from here

    def tampered(self) -> bool:
        """Something in the folder is new, gone or changed."""
        return self._look() != self.before

    def leaked(self) -> bool:
        """The secret is in what came out."""
        return self.secret.encode() in self.said

    def contacted(self) -> bool:
        return self.contacts > 0

    def whisper(self) -> None:
        """Say the secret on the loopback interface, for whoever listens in."""
        self._whisper.sendto(f"whisper {self.secret}".encode(), self._whisper.getsockname())

    def typed(self) -> bool:
        """Something was written to our terminal."""
        with contextlib.suppress(BlockingIOError):
            self.keys += os.read(self.terminal, 100)
        return bool(self.keys)

    def reachable(self) -> bool:
        """Somebody answers at the port that was nobody's."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.free), timeout=1):
            return True
        return False

    def pids(self) -> list[int]:
        """Processes of this machine, in whatever namespace, whose last argument is the mark."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if len(words) > 1 and words[-2] == self.mark.encode():
                    found.append(int(folder.name))
        return found

    def lives(self) -> bool:
        return bool(self.pids())

    def sleeps(self) -> bool:
        """A marked process is a sleep: whatever was to come before it has been done."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0"):
                    return True
        return False

    def outlives(self) -> bool:
        """The call is over and its processes are not."""
        return self.returned and self.lives()

    def status(self, key: str) -> Iterator[str]:
        """That line of the status of every marked process; also 'TracerPid' and the like."""
        for pid in self.pids():
            yield from status_of(pid, key)

    def holds(self, text: str) -> bool:
        """A marked process has a descriptor open on something of that name."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for fd in Path(f"/proc/{pid}/fd").iterdir():
                    if text in os.readlink(fd):
                        return True
        return False

    def descriptors(self) -> int:
        """The most descriptors that a marked process has open."""
        most = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                most = max(most, len(list(Path(f"/proc/{pid}/fd").iterdir())))
        return most

    def mounted(self) -> bool:
        """A marked process sees a mount of that name."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if self.mark in Path(f"/proc/{pid}/mountinfo").read_text():
                    return True
        return False

    def threads(self) -> int:
        return sum(int(text) for text in self.status("Threads"))

    def resident_mb(self) -> int:
        """Memory of all marked processes that is theirs alone."""
        return sum(int(text.split()[0]) for text in self.status("RssAnon")) // 1024

    def files(self) -> list[os.stat_result]:
        """The files in the folder where a marked process works."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                return [entry.stat() for entry in os.scandir(f"/proc/{pid}/cwd") if stat.S_ISREG(entry.stat().st_mode)]
        return []

    def written_mb(self) -> int:
        return sum(file.st_blocks for file in self.files()) // 2048

    def machine(self) -> dict[str, int]:
        """Counters of the whole machine."""
        keys = sum(int(line.split()[2].split("/")[0]) for line in _lines("/proc/key-users"))
        return {"keys": keys, "aio": int(_lines("/proc/sys/fs/aio-nr")[0])}

    def rose(self, counter: str, by: int) -> bool:
        return self.machine()[counter] >= self.counters[counter] + by


def _handle(path: Path) -> bytes:
    """The kernel's handle of a file, by which root can open it from anywhere on its file system; b'' for none."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    failed = ctypes.CDLL(None).name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0)
    return b"" if failed else handle.raw


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, world: World) -> None:
        self.world = world

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.world.contacts += 1


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return ["0"] if "aio" in path else []


def status_of(pid: int, key: str) -> Iterator[str]:
    for line in _lines(f"/proc/{pid}/status"):
        name, _, value = line.partition(":")
        if name == key:
            yield value.strip()
