"""The system-call filter that every sandboxed program runs under, as classic BPF.

Invariants: deny by name with EPERM, so that a program sees an error instead of dying; foreign ABIs (32-bit, x32) are
denied whole; new namespaces are denied, because the sandbox's own are already made. ``clone3`` answers ENOSYS, since
its flags lie behind a pointer that a filter cannot read: libc then falls back to ``clone``. Only Unix and IP sockets
may be made: the other families (vsock, netlink, packet) are not all confined by a network namespace. Denied too is what
no rlimit of a process bounds, because it outlives its process or is counted for the whole machine: System V shared
memory and queues, memory files, watches, asynchronous input and output.
"""

from __future__ import annotations

import errno
import platform
import struct

from callwright.envs.executors.sandbox.limits import SandboxError

# name: number on (x86_64, aarch64); None where the architecture has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_ARCHITECTURES = {"x86_64": 0, "aarch64": 1}
_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x80
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR, _ARCH, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _deny(error: int) -> bytes:
    return _op(_RET, _ERRNO | error)


def build_filter(machine: str | None = None) -> bytes:
    """The filter's instructions for this machine. Raises SandboxError where we do not know its call numbers."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise SandboxError(f"no system-call filter for {machine}: there is one for {', '.join(_ARCHITECTURES)}")
    column = _ARCHITECTURES[machine]
    program = [_op(_LD, _ARCH), _op(_JEQ, _AUDIT_ARCH[column], 1, 0), _deny(errno.EPERM), _op(_LD, _NR)]
    if column == 0:
        program += [_op(_JGE, _X32_BIT, 0, 1), _deny(errno.EPERM)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            program += [_op(_JEQ, number, 0, 1), _deny(errno.EPERM)]
    program += [_op(_JEQ, _CLONE3[column], 0, 1), _deny(errno.ENOSYS)]
    program += [_op(_JEQ, _CLONE[column], 0, 4), _op(_LD, _ARG0), _op(_JSET, _NEW_NAMESPACES, 0, 1), _deny(errno.EPERM)]
    program += [_op(_LD, _NR)]
    allowed = [_op(_JEQ, family, len(_FAMILIES) - i, 0) for i, family in enumerate(_FAMILIES)]
    program += [_op(_JEQ, _SOCKET[column], 0, len(_FAMILIES) + 2), _op(_LD, _ARG0), *allowed, _deny(errno.EAFNOSUPPORT)]
    program += [_op(_RET, _ALLOW)]
    return b"".join(program)
