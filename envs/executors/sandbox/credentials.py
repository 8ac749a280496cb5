"""Who sent a message over a Unix socket, by the kernel's word: the sender's pid as this process sees it.

A process in another pid namespace does not know its own pid here, and could say any other.
"""

from __future__ import annotations

import asyncio
import socket
import struct

_UCRED = struct.Struct("iII")  # pid, uid, gid


def ask_for_pids(receiver: socket.socket) -> None:
    """Have the kernel add the sender to every message; before the first is sent."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


async def pid_of_sender(receiver: socket.socket) -> int:
    """Take one message and return its sender's pid; 0 where the other end closed instead."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(receiver, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(receiver)
    said, notes, _, _ = receiver.recvmsg(16, socket.CMSG_SPACE(_UCRED.size))
    for level, kind, note in notes:
        if said and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_UCRED.unpack(note)[0])
    return 0
