"""Knows at which addresses a host may be told: resolves its name once and checks every address of it.

Whoever connects must connect to what is returned here. A name that was resolved a second time could lead
somewhere else by then.
"""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from trackside.domain.reach import Address, Reach, Refusal


class NotAllowed(Exception):
    """Notices may not go there; the text says why, and names no address."""


class Route:
    """Find the addresses of hosts that may be told."""

    def __init__(self, reach: Reach | None = None) -> None:
        self._reach = reach or Reach()
        self.own_port: int | None = None  # where this server listens, once it does

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return where to connect, best first; raise NotAllowed, or OSError if there is no such host."""
        refusal = self._reach.refusal_of_name(host)
        if refusal is not None:
            raise NotAllowed(refusal)
        refused: list[Refusal] = []
        allowed: list[str] = []
        for address in await _resolved(host, port):
            why = self._refusal(host, address, port)
            if why is None:
                allowed.append(address)
            else:
                refused.append(why)
        if not allowed:
            raise NotAllowed(refused[0])
        return allowed

    def _refusal(self, host: str, text: str, port: int) -> Refusal | None:
        address = ip_address(text)
        if port == self.own_port and _is_own(address):
            return Refusal.OWN
        return self._reach.refusal(host, address)


async def _resolved(host: str, port: int) -> Sequence[str]:
    """Return what a name stands for, or what an address means however it is spelled (http://2130706433/)."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise NotAllowed("no host can have that name: look for a typing error") from None
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _is_own(address: Address) -> bool:
    """Say whether an address leads to this machine: then it is also where the connection would come from."""
    if address.is_loopback or address.is_unspecified:
        return True
    mapped = None if address.version == 4 else address.ipv4_mapped
    if mapped is not None:
        return _is_own(mapped)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address
