"""Attacks that reach for something of the host: its files, memory, processes, network, namespaces and rights."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from attack_world import Attack, World, python, status_of

# What the programs below share: the number of a system call, made by name on this architecture.
CALL = """
import ctypes, mmap, os, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(x86_64, aarch64, *arguments):
    number = {"x86_64": x86_64, "aarch64": aarch64}[os.uname().machine]
    return libc.syscall(number, *(ctypes.c_long(a) if type(a) is int else a for a in arguments))
"""
SLEEP = "\ntime.sleep(1000)"
WOULD_CHANGE = "it would change this machine"


def held(call: str) -> str:
    """Make a descriptor by a system call, and keep it open to be seen."""
    return python(f"{CALL}\nif {call} < 0: sys.exit(1){SLEEP}")


def connect(family: str, address: str) -> str:
    return python(f"import socket\ns = socket.socket(socket.{family})\ns.settimeout(2)\ns.connect({address})")


def send(data: str) -> str:
    return python(
        f'import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto({data}, ("127.0.0.1", @udp@))'
    )


def changed(path: str, value: str) -> bool:
    return Path(path).read_text().strip() == value


def victim_gone(world: World) -> bool:
    return world.victim.poll() is not None


def traced(world: World) -> bool:
    return any(pid != "0" for pid in status_of(world.victim.pid, "TracerPid"))


STACK = (
    CALL + 'for line in open("/proc/@victim@/maps"):\n    if line.rstrip().endswith("[stack]"):\n'
    '        a, b = (int(x, 16) for x in line.split()[0].split("-"))\n'
)
BY_MEM = STACK + 'f = open("/proc/@victim@/mem", "rb", 0)\nf.seek(a)\nprint(f.read(b - a).strip(bytes(1)))'
BY_READV = (
    STACK + "data = ctypes.create_string_buffer(b - a)\nhere = struct.pack('QQ', ctypes.addressof(data), b - a)\n"
    "call(310, 270, @victim@, here, 1, struct.pack('QQ', a, b - a), 1, 0)\nprint(data.raw.strip(bytes(1)))"
)
SNIFF = (
    "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\ns.settimeout(2)\n"
    "for _ in range(1000):\n    data = s.recv(2000)\n    if b'whisper' in data:\n        print(data)\n        break"
)
HANDLE = (
    CALL + "handle = ctypes.create_string_buffer(bytes.fromhex('@handle@'))\n"
    "fd = libc.open_by_handle_at(os.open('/usr', os.O_RDONLY), handle, os.O_WRONLY | os.O_APPEND)\nos.write(fd, b'x')"
)
SERVE = (
    'import socket\ns = socket.socket()\ns.bind(("0.0.0.0", @free@))\ns.listen()\ns.settimeout(1)\n'
    "for _ in range(20):\n    s.accept()"
)
CLONE = (
    CALL + "if call(56, 220, 0x10000000 | 17, 0, 0, 0, 0) == 0: os.execvp('sleep', ['sleep', '@mark@'])\ntime.sleep(.5)"
)
PERF = "call(298, 241, struct.pack('IIQQQQQ', 1, 112, 0, 0, 0, 0, 1 << 5 | 1 << 6) + bytes(64), 0, -1, -1, 0)"
BPF = "call(321, 280, 0, struct.pack('IIIII', 2, 4, 4, 1, 0) + bytes(100), 120)"
KEY = "call(248, 217, b'user', b'@mark@', b'x', 1, -2)"

FILES = [
    Attack("write outside", "echo x > @folder@/planted", World.tampered),
    Attack("overwrite", "echo x > @folder@/kept", World.tampered),
    Attack("delete", "rm -f @folder@/kept", World.tampered),
    Attack("rename", "mv @folder@/kept @folder@/moved", World.tampered),
    Attack("change rights", "chmod 4755 @folder@/kept", World.tampered),
    Attack("symlink", "ln -s @folder@/kept link; echo x >> link", World.tampered),
    Attack("hard link", "ln @folder@/kept link && echo x >> link", World.tampered),
    Attack("climb", "cd ../../../../../../..; echo x > .@folder@/planted", World.tampered),
    Attack(
        "another root", "for p in @victim@ 1 $PPID; do echo x > /proc/$p/root@folder@/planted; done", World.tampered
    ),
    Attack("another cwd", "touch /proc/@victim@/cwd/planted", World.tampered),
    Attack(
        "inherited descriptor",
        python("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x')\n    except OSError: pass"),
        World.tampered,
    ),
    Attack("open by handle", python(HANDLE), World.tampered, root=True),
    Attack("shared memory folder", "echo x > /dev/shm/@mark@", lambda w: Path(f"/dev/shm/{w.mark}").exists()),
    Attack("terminal", "echo x > @terminal@", World.typed),
    Attack(
        "kernel setting",
        "echo 46 > /proc/sys/fs/lease-break-time",
        lambda _: changed("/proc/sys/fs/lease-break-time", "46"),
        bare=WOULD_CHANGE,
    ),
    Attack(
        "host name",
        python("import socket; socket.sethostname('m@mark@')"),
        lambda w: os.uname().nodename == f"m{w.mark}",
        bare=WOULD_CHANGE,
    ),
    Attack("read a file", "cat @folder@/kept", World.leaked),
    Attack("read the environment", "env; cat /proc/self/environ /proc/$PPID/environ", World.leaked),
]
PROCESSES = [
    Attack("environment of another", "cat /proc/@victim@/environ /proc/1/environ", World.leaked),
    Attack("memory by /proc", python(BY_MEM), World.leaked, root=True),
    Attack("memory by process_vm_readv", python(BY_READV), World.leaked, root=True),
    Attack("ptrace", held("call(101, 117, 16, @victim@, 0, 0)"), traced, root=True),
    Attack("kill another", "kill -9 @victim@", victim_gone),
    Attack("kill all", "kill -9 -1", victim_gone, bare="it would end every process of this machine"),
    Attack("signal the parent", "kill -USR1 $PPID", lambda w: w.signals > 0),
]
NETWORK = [
    Attack("TCP", connect("AF_INET", '("127.0.0.1", @tcp@)'), World.contacted),
    Attack("TCP over IPv6", connect("AF_INET6", '("::1", @tcp6@)'), World.contacted),
    Attack("UDP", send("b'x'"), World.contacted),
    Attack(
        "DNS query", send(r"bytes(2) + b'\x01\x00\x00\x01' + bytes(6) + b'\x01x\x00\x00\x10\x00\x01'"), World.contacted
    ),
    Attack("Unix socket", connect("AF_UNIX", "'@folder@/socket'"), World.contacted),
    Attack("abstract socket", connect("AF_UNIX", r"'\x00@mark@'"), World.contacted),
    Attack("be a server", python(SERVE), World.reachable),
    Attack("listen in", python(SNIFF), World.leaked, root=True),
]
RIGHTS = [
    Attack("user namespace", "unshare --user sleep @mark@", World.sleeps),
    Attack("user namespace by clone", f"python3 -c {shlex.quote(CLONE)}", World.sleeps),
    Attack("mount", "mount -t tmpfs @mark@ /mnt && sleep @mark@", World.mounted, root=True, inside="unshare --mount"),
    Attack("join namespaces", "nsenter -t @victim@ -m -n touch @folder@/planted", World.tampered, root=True),
    Attack("change root", "chroot /proc/@victim@/root touch @folder@/planted", World.tampered, root=True),
    Attack(
        "become root",
        python("import os, time\nos.setresuid(0, 0, 0)" + SLEEP),
        lambda w: any(uids.split()[0] == "0" for uids in w.status("Uid")),
        root=True,
    ),
    Attack(
        "out-of-memory priority",
        "echo 0 > /proc/self/oom_score_adj && exec sleep @mark@",
        lambda w: any(Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "0" for pid in w.pids()),
    ),
    Attack(
        "real-time priority",
        "chrt -f 1 sleep @mark@",
        lambda w: any(os.sched_getscheduler(pid) == os.SCHED_FIFO for pid in w.pids()),
        root=True,
    ),
    Attack("kernel key", held(KEY), lambda w: w.rose("keys", 1)),
    Attack("bpf map", held(BPF), lambda w: w.holds("bpf-map"), root=True),
    Attack("io_uring", held("call(425, 425, 1, bytes(120))"), lambda w: w.holds("io_uring")),
    Attack("performance event", held(PERF), lambda w: w.holds("perf_event"), root=True),
    Attack("userfaultfd", held("call(323, 282, 1)"), lambda w: w.holds("userfaultfd")),
    Attack("fanotify", held("call(300, 262, 0, 0)"), lambda w: w.holds("fanotify"), root=True),
    Attack("watches", held("libc.inotify_init1(0)"), lambda w: w.holds("inotify")),
    Attack("memory file", held("os.memfd_create('x')"), lambda w: w.holds("memfd")),
    Attack(
        "asynchronous reads", held("call(206, 0, 1000, ctypes.byref(ctypes.c_ulong()))"), lambda w: w.rose("aio", 900)
    ),
    Attack(
        "System V memory",
        held("libc.shmget(@key@, 4096, 0o1600)"),
        lambda w: any(str(w.key) in line.split()[:1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()),
    ),
]
REACH = [*FILES, *PROCESSES, *NETWORK, *RIGHTS]
