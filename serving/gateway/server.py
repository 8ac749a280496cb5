"""The application on a socket: uvicorn serves, this only binds and tunes it."""

from __future__ import annotations

import socket

import uvicorn
from starlette.applications import Starlette

from callwright.serving.errors import UserError

DRAIN_S = 5  # how long replies in the making may still run once the server is told to stop


def bind(host: str, port: int) -> socket.socket:
    """A listening address. Raises UserError where it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # who is told the address may call at once, and waits until it is served
    except OSError as error:
        raise UserError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listener


def address(listener: socket.socket) -> str:
    """Where clients find it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family is socket.AF_INET6 else f"http://{host}:{port}"


def server(app: Starlette) -> uvicorn.Server:
    """To be run with ``server(app).run(sockets=[bind(...)])``; it answers SIGINT and SIGTERM by itself."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_S,
        lifespan="on",
        server_header=False,
    )
    return uvicorn.Server(config)
