"""The program that looks at the walls of the sandbox from inside: standard library only, no single quotes in the file.

The host runs this source in the sandbox and reads the one JSON line that it prints; see walls.py. FILE is a file of
the host that everybody may read.
"""

from __future__ import annotations

import ctypes
import json
import os

FILE = "@FILE@"
NEW_USER_NAMESPACE = 0x10000000
OWN_VARIABLES = {"HOME", "LANG", "PATH", "TMPDIR", "PWD", "SHLVL", "OLDPWD", "_", "LC_CTYPE"}


def look() -> dict[str, object]:
    libc = ctypes.CDLL(None)
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    with open("/proc/net/dev") as file:
        interfaces = [line.split(":")[0].strip() for line in file.readlines()[2:]]
    return {
        "uid": os.getuid(),
        "capabilities": int(status["CapEff"], 16),
        "new privileges": status["NoNewPrivs"] != "1",
        "system-call filter": status["Seccomp"] == "2",
        "can mount": libc.mount(b"x", b"/scratch", b"tmpfs", 0, 0) == 0,
        "can make namespaces": libc.unshare(NEW_USER_NAMESPACE) == 0,
        "network interfaces": interfaces,
        "writable folders": [path for path in ("/", "/usr", "/etc", "/dev", "/sys") if os.access(path, os.W_OK)],
        "files of the host": [path for path in (FILE, "/etc/passwd", "/root", "/home") if os.path.exists(path)],
        "environment": sorted(set(os.environ) - OWN_VARIABLES),
    }


if __name__ == "__main__":
    print(json.dumps(look()))
