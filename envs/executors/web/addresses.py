"""Which addresses a page may be fetched from: those of the public internet.

A page's URL comes from outside, and this machine may stand in a network where much answers without asking who calls.
Invariant: a name is resolved once, every address that it has is judged, and the connection goes to a judged address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[str]]  # it may block: it runs in a thread

_GLOBAL_V6 = ip_network("2000::/3")  # all else maps IPv4, translates to it, or is local
_REFUSED = tuple(  # whatever the library's tables say, which differ from Python to Python
    map(
        ip_network,
        (
            "192.0.0.0/24",  # protocol assignments; one cloud's metadata
            "192.88.99.0/24",  # relays of 6to4
            "168.63.129.16/32",  # one cloud's own services, for its guests alone
            "2001::/23",  # protocol assignments; Teredo, which holds IPv4 addresses
            "2002::/16",  # 6to4, which does too
        ),
    )
)


class AddressRefused(Exception):
    """A host that pages are not fetched from."""


def system_resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the machine's resolver gives them. Raises OSError, UnicodeError."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def is_public(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether an address is one of the public internet, or of an ``allowed`` network."""
    ip: IPv4Address | IPv6Address = ip_address(address)
    if any(ip in network for network in allowed):
        return True
    if ip.is_multicast or ip.is_reserved or not ip.is_global or any(ip in network for network in _REFUSED):
        return False
    return ip.version == 4 or ip in _GLOBAL_V6


def judged_addresses(host: str, port: int, resolve: Resolve, allowed: Sequence[Network]) -> Sequence[str]:
    """The addresses to connect to, in order. Raises AddressRefused, OSError, UnicodeError."""
    found = list(dict.fromkeys(resolve(host, port)))
    # One bad address among good ones is how a name is made to point inside.
    if not found or not all(is_public(address, allowed) for address in found):
        raise AddressRefused(f"{host} is no public address")
    return found
