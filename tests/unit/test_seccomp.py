"""The system-call filter: what its instructions decide, for both architectures, by a small interpreter of them."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from callwright.envs.executors.sandbox import SandboxError
from callwright.envs.executors.sandbox.seccomp import DENIED, build_filter

pytestmark = pytest.mark.unit

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, DENY = 0x7FFF0000, 0x00050000
NEW_USER = 0x10000000
THREAD = 0x3D0F00  # what pthread_create asks of clone


def decide(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """The filter's answer to one system call, as linux/seccomp.h and linux/filter.h define it."""
    code = build_filter(machine)
    program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number, arch or MACHINES[machine][1], 0, *padded)
    accumulator = at = 0
    while True:
        operation, if_true, if_false, k = program[at]
        at += 1
        if operation == 0x06:
            return int(k)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
            continue
        truth = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[operation]
        at += if_true if truth else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_an_error_and_others_are_allowed(machine: str) -> None:
    column, _ = MACHINES[machine]
    denied = {numbers[column] for numbers in DENIED.values()} - {None}
    special = {"x86_64": {41, 56, 435}, "aarch64": {198, 220, 435}}[machine]
    for number in set(range(600)) - special:
        assert decide(machine, number) == (DENY | errno.EPERM if number in denied else ALLOW), number


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_are_allowed_and_namespaces_are_not(machine: str) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert decide(machine, clone, THREAD) == decide(machine, clone, 17) == ALLOW
    assert decide(machine, clone, NEW_USER | 17) == DENY | errno.EPERM
    assert decide(machine, 435, 0) == DENY | errno.ENOSYS  # clone3: libc falls back to clone


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_three_families(machine: str) -> None:
    socket = {"x86_64": 41, "aarch64": 198}[machine]
    allowed = [family for family in range(50) if decide(machine, socket, family, 1, 0) == ALLOW]
    assert allowed == [1, 2, 10]
    assert decide(machine, socket, 16) == DENY | errno.EAFNOSUPPORT


def test_foreign_calling_conventions_are_refused() -> None:
    for number in (0, 1, 39):
        assert decide("x86_64", number, arch=0x40000003) == DENY | errno.EPERM  # 32-bit
        assert decide("x86_64", number | 0x40000000) == DENY | errno.EPERM  # x32
        assert decide("aarch64", number, arch=0x40000028) == DENY | errno.EPERM


def test_an_unknown_architecture_has_no_filter_and_so_no_sandbox() -> None:
    with pytest.raises(SandboxError, match="no system-call filter for riscv64"):
        build_filter("riscv64")


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_are_the_kernels(column: int, header: str) -> None:
    if not Path(header).is_file():
        pytest.skip(f"no {header}: the package linux-libc-dev has it")
    text = Path(header).read_text()
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    for name, known in DENIED.items():
        assert numbers.get(name, known[column]) == known[column], name  # an older header lacks the newest
