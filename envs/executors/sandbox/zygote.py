"""The warm process inside the sandbox: forks one isolated child per call. Standard library only, one file.

The host starts this source with ``python3 -c`` inside bubblewrap and talks to it over a SEQPACKET socket on fd 0.

Invariants:
- The zygote never reads a command or an output: they pass by as file descriptors, so no call can find another call's
  text in the memory it was forked from.
- Per call there are two processes. The *warden* is pid 1 of a fresh pid namespace: it mounts the scratch, takes away
  every right, then only waits. The *program* is its child. When the program ends the warden ends, and with pid 1 gone
  the kernel kills whatever the program left behind; only then is the call reported as done.
- No right is left when the program's first instruction runs: no capability, no new privileges, seccomp filter, rlimits.
"""

from __future__ import annotations

import atexit
import builtins
import collections
import ctypes
import datetime
import functools
import gc
import hashlib
import itertools
import json
import math
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import types
from typing import Any, NoReturn

PREIMPORTED = (collections, datetime, functools, hashlib, itertools, json, math, random, re)
SCRATCH = "/scratch"
CLONE_FLAGS = 0x00020000 | 0x08000000 | 0x20000000  # new mount, ipc and pid namespaces
SYS_CLONE, SYS_CAPSET = {"x86_64": (56, 126), "aarch64": (220, 91)}[os.uname().machine]
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 38, 47
# Exactly `python3 -c '...'` with nothing for a shell to do: the hot path, run without a shell and without exec.
PYTHON_C = re.compile(r"\s*python3? -c '([^']*)'\s*", re.DOTALL)

# PyDLL keeps the interpreter lock across the call, as os.fork does.
libc = ctypes.PyDLL(None, use_errno=True)
python = ctypes.pythonapi
for hook in (python.PyOS_BeforeFork, python.PyOS_AfterFork_Child, python.PyOS_AfterFork_Parent):
    hook.restype = None


def check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def clone(flags: int) -> int:
    """``os.fork`` into new namespaces."""
    python.PyOS_BeforeFork()
    pid = libc.syscall(SYS_CLONE, ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return check(int(pid), "clone")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()), f"mount {target}")


class Filter:
    """A seccomp program, laid out once in the zygote so that a child only makes the system call."""

    def __init__(self, code: bytes) -> None:
        self.buffer = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog {unsigned short len; struct sock_filter *filter;}
        self.program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(self.buffer))

    def install(self) -> None:
        check(libc.prctl(PR_SET_SECCOMP, 2, self.program, 0, 0), "seccomp")


def isolate(config: dict[str, Any]) -> None:
    """In the warden: fresh scratch and /proc, visible to this call alone."""
    size = f"size={config['scratch_bytes']},nr_inodes={config['scratch_files']},mode=700"
    mount("tmpfs", SCRATCH, "tmpfs", MS_NOSUID | MS_NODEV, size)
    mount(SCRATCH, "/dev/shm", "", MS_BIND)
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def disarm(config: dict[str, Any], seccomp: Filter) -> None:
    """In the warden: give up every right, for itself and for the program it will fork."""
    for name, soft, hard in config["rlimits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    header = struct.pack("Ii", 0x20080522, 0)
    check(libc.syscall(SYS_CAPSET, header, bytes(24)), "capset")
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # The program shares the warden's uid: undumpable, its memory and descriptors are out of reach.
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    seccomp.install()


def warden(config: dict[str, Any], seccomp: Filter, nested: bool, fds: list[int], report: int) -> NoReturn:
    """Pid 1 of the call. Never returns."""
    command, out, err = fds
    try:
        if nested:
            isolate(config)
        os.chdir(SCRATCH)
        disarm(config, seccomp)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # pid 1 ignores signals that have the default action
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(out, 1)
                os.dup2(err, 2)
                text = os.pread(command, 1 << 20, 0)
                os.closerange(3, 256)
                libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
                program(text.decode())
            finally:
                os._exit(127)
    except BaseException as error:
        os.write(report, f"{type(error).__name__}: {error}".encode()[:500])
        os._exit(126)
    os.closerange(0, 256)
    while True:
        done, status = os.wait()
        if done == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)  # as a shell tells of a signal


def program(text: str) -> None:
    """Become the command. Returns only where there is no shell."""
    match = PYTHON_C.fullmatch(text)
    if match:
        run_python(match.group(1))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a shell's programs expect them
        signal.signal(number, signal.SIG_DFL)
    for shell in ("/bin/bash", "/bin/sh"):
        if os.path.exists(shell):
            os.execve(shell, [os.path.basename(shell), "-c", text], dict(os.environ))


def run_python(source: str) -> NoReturn:
    """What ``python3 -c source`` does, in this process. Never returns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __loader__=None)
    sys.modules["__main__"] = main
    sys.argv[:] = ["-c"]
    code = 0
    try:
        exec(compile(source + "\n", "<string>", "exec"), main.__dict__)
    except SystemExit as stop:
        code = exit_code(stop)
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        # Without our own frame; a syntax error has no other.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        main.__dict__.clear()  # runs the finalisers that interpreter shutdown would run
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                code = code or 120  # as the interpreter exits when it cannot flush
        os._exit(code)


def exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


class Zygote:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.seccomp = Filter(bytes.fromhex(config["seccomp"]))
        self.nested = config["nested"]

    def serve(self) -> None:
        while True:
            message, fds, _, _ = socket.recv_fds(self.control, 4096, 3)
            if not message:
                return  # the host is gone
            request = json.loads(message)
            if "run" in request:
                self.control.send(json.dumps({"started": request["run"]}).encode())
                self.control.send(json.dumps({"done": request["run"], **self.call(request, fds)}).encode())

    def call(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        begin = time.monotonic()
        report_read, report_write = os.pipe()
        pid = self.fork()
        if pid == 0:
            os.close(report_read)
            self.control.close()
            warden(self.config, self.seccomp, self.nested, fds, report_write)
        os.close(report_write)
        for fd in fds:
            os.close(fd)
        killed = self.wait(pid, request, begin + request["wall_s"])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        fault = os.read(report_read, 500).decode(errors="replace")
        os.close(report_read)
        return {"exit": status, "killed": killed, "fault": fault}

    def fork(self) -> int:
        if self.nested:
            return clone(CLONE_FLAGS)
        pid = os.fork()
        if pid == 0:
            os.setsid()
        return pid

    def wait(self, pid: int, request: dict[str, Any], deadline: float) -> str:
        """Until the call's pid 1 has ended; kills it at the deadline or at the host's word. Why it did, or ''."""
        pidfd = os.pidfd_open(pid)
        killed = ""
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        poller.register(self.control, select.POLLIN)
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = dict(poller.poll(None if killed else left * 1000 + 1))
            if pidfd in ready:
                os.close(pidfd)
                return killed
            if self.control.fileno() in ready:
                message = self.control.recv(4096)
                if not message:
                    os._exit(0)  # the host is gone; bubblewrap's namespace takes the call along
                if json.loads(message).get("kill") == request["run"]:
                    killed = "host"
            elif not ready and not killed:
                killed = "time"
            if killed:
                os.kill(pid, signal.SIGKILL)
                if not self.nested:
                    os.killpg(pid, signal.SIGKILL)


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    control.send(
        b"here"
    )  # the kernel tells the host our pid with it, to put us in a control group before anything runs
    zygote = Zygote(control, json.loads(control.recv(1 << 20)))
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # a disposable one shares its pid namespace with the program
    gc.collect()
    gc.freeze()  # children do not touch, and so do not copy, what lives here
    control.send(json.dumps({"ready": os.getpid()}).encode())
    zygote.serve()


if __name__ == "__main__":
    main()
