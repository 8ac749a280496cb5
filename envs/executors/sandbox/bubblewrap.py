"""How the zygote's bubblewrap is launched: the file system a program sees, and the uid it runs as.

Invariants: nothing of the host is writable and little is readable (/usr and the loader's cache; nothing of /root, /home
or /tmp); the environment is set here from nothing; the process tree has its own pid, network, ipc and uts namespaces
and dies with us. A root host first drops to an unprivileged uid: rlimits do not bind real root, and root owns the
host's files.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from callwright.envs.executors.sandbox.limits import SandboxError

INSTALL = "apt-get install bubblewrap python3"
SANDBOX_UID = 65532
SCRATCH = "/scratch"
_ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SYSTEM_PATH = "/usr/bin:/usr/local/bin:/bin"
_ZYGOTE = Path(__file__).with_name("zygote.py")


@dataclass(frozen=True, slots=True)
class Launcher:
    """What was found on this machine. ``nested`` keeps the right to make a fresh set of namespaces for each call."""

    bwrap: str
    python: str
    prefix: str | None  # the interpreter's own tree, where it is not part of the system
    sized: bool = False  # whether this bubblewrap can cap a tmpfs (0.7 and later)
    sealed: bool = False  # whether it can forbid further user namespaces (0.8 and later)
    nested: bool = True

    @classmethod
    def find(cls) -> Launcher:
        """Raises SandboxError with the line to run where something is missing."""
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxError(f"bubblewrap is not installed; run: {INSTALL}")
        usage = subprocess.run([bwrap, "--help"], capture_output=True, timeout=20, check=False).stdout
        sized, sealed = b"--size" in usage, b"--disable-userns" in usage
        system = shutil.which("python3", path=_SYSTEM_PATH)
        if system is not None:
            return cls(bwrap, system, None, sized, sealed)
        prefix = os.path.realpath(sys.base_prefix)
        return cls(bwrap, f"{prefix}/bin/python3", prefix, sized, sealed)

    @property
    def drop(self) -> int | None:
        """The uid that a root host gives its rights up for; None: the program runs as our own."""
        return SANDBOX_UID if os.geteuid() == 0 and _is_mapped(SANDBOX_UID) else None

    def argv(self, scratch_bytes: int) -> list[str]:
        """The whole command line; the last argument is the zygote's source."""
        return [*self.wrapper(scratch_bytes), self.python, "-s", "-E", "-c", _ZYGOTE.read_text()]

    def wrapper(self, scratch_bytes: int) -> list[str]:
        """Bubblewrap and all that it is told, before the command that it is to run."""
        uid = str(SANDBOX_UID)
        arguments = [self.bwrap, "--unshare-all", "--unshare-user", "--uid", uid, "--gid", uid]
        arguments += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self.sealed:
            arguments += ["--disable-userns"]
        if self.nested:
            arguments += ["--cap-add", "CAP_SYS_ADMIN"]  # in the sandbox's user namespace; the warden gives it up
        arguments += self._file_system(scratch_bytes)
        environment = {"PATH": f"/sandbox/bin:{_SYSTEM_PATH}", "HOME": SCRATCH, "TMPDIR": SCRATCH, "LANG": "C.UTF-8"}
        arguments += ["--clearenv"]
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        return arguments

    def _file_system(self, scratch_bytes: int) -> list[str]:
        arguments = ["--ro-bind", "/usr", "/usr"]
        if not self.python.startswith("/usr/local/"):
            arguments += ["--tmpfs", "/usr/local"]  # what the machine's owner put there is not the program's to read
        for name in _ROOT_FOLDERS:
            folder = f"/{name}"
            if os.path.islink(folder):
                arguments += ["--symlink", os.readlink(folder), folder]
            elif os.path.isdir(folder):
                arguments += ["--ro-bind", folder, folder]
        for path in ("/etc/alternatives", "/etc/ld.so.cache"):
            arguments += ["--ro-bind-try", path, path]
        if self.prefix is not None:
            arguments += ["--ro-bind", self.prefix, self.prefix]
        arguments += ["--symlink", self.python, "/sandbox/bin/python", "--symlink", self.python, "/sandbox/bin/python3"]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--symlink", "scratch", "/tmp"]
        # These two are all that stays writable. A nested call covers them with its own.
        for folder in (SCRATCH, "/dev/shm"):
            arguments += [*(["--size", str(scratch_bytes)] if self.sized else []), "--tmpfs", folder]
        # In a writable /proc a program could take back its rank among what the kernel ends for want of memory.
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/proc"]
        if not self.python.startswith("/usr/local/"):
            arguments += ["--remount-ro", "/usr/local"]
        return [*arguments, "--remount-ro", "/"]

    def spawn(self, control: socket.socket, scratch_bytes: int) -> subprocess.Popen[bytes]:
        """Start one zygote that talks over ``control``. The caller's thread must outlive it (die-with-parent)."""
        drop = self.drop
        return subprocess.Popen(
            self.argv(scratch_bytes),
            stdin=control.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env={},
            user=drop,
            group=drop,
            extra_groups=None if drop is None else [],
        )


def _is_mapped(uid: int) -> bool:
    """Whether this user namespace has ``uid``; in a container with one mapped uid, root is already nobody outside."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= uid < first + count for first, _, count in ranges)
