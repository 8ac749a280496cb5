"""Reading an answer's body without trusting its size.

Invariant: hardly more than ``limit`` bytes are held, neither as they came nor unpacked: what goes beyond is an error
before the rest is received or unpacked.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable

ACCEPT_ENCODING = "gzip"  # all that is unpacked here, with a bound that a library's decoder does not give
_UNPACKED_HERE = ("gzip", "x-gzip", "deflate")


class BodyError(Exception):
    """A body that is too large, or that cannot be unpacked."""


async def read_body(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """The body behind a Content-Encoding. Raises BodyError."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return await _read(chunks, limit)
    if encoding not in _UNPACKED_HERE:
        raise BodyError(f"packed as {encoding[:40]!r}, which was not asked for")
    return await _unpack(chunks, limit)


async def _read(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        _check(len(body), limit)
    return bytes(body)


async def _unpack(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, as its own header says
    body = bytearray()
    came = 0
    async for chunk in chunks:
        came += len(chunk)
        _check(came, limit)  # an endless stream can also unpack to nothing
        try:
            body += unpacker.decompress(chunk, limit + 1 - len(body))
        except zlib.error as error:
            raise BodyError(f"cannot be unpacked: {error}") from None
        _check(len(body), limit)
    if not unpacker.eof:
        raise BodyError("cannot be unpacked: it breaks off")
    return bytes(body)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise BodyError(f"larger than {limit} bytes")
