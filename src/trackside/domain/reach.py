"""Knows to which hosts and addresses the server may send notices; refuses to know how a name is resolved."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from trackside.domain.errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Link-local addresses, and those at which clouds hand out credentials to whatever runs on a machine.
NEVER: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure
        "192.0.0.192/32",  # Oracle Cloud
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google Cloud
    )
)
_TRANSLATED = ip_network("64:ff9b::/96")  # IPv4 behind a NAT64 gateway: the last four bytes
_LABEL = "[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*)\Z")


class Refusal(StrEnum):
    """Why a notice does not go somewhere, in words for whoever gave the address."""

    NEVER = (
        "notices never go to link-local addresses or a cloud's metadata service: give a receiver's address"
    )
    OWN = "that is this server's own port: give a receiver's address"
    UNLISTED = (
        "this server sends notices only to what its setting notify_hosts lists, and that host is not in it:"
        " choose a listed one, or let whoever runs the server add it"
    )


@dataclass(frozen=True, slots=True)
class Reach:
    """Where notices may go: to what is listed, or, where nothing is, anywhere; but never to NEVER."""

    names: tuple[str, ...] = ()  # a name, *.suffix, or *
    networks: tuple[Network, ...] = ()

    def refusal(self, host: str, address: Address) -> Refusal | None:
        """Return why a host may not be told at one of its addresses, or None."""
        plain = _plain(address)
        if any(plain in network for network in NEVER):
            return Refusal.NEVER
        if not (self.names or self.networks) or self.lists(host):
            return None
        return None if any(plain in network for network in self.networks) else Refusal.UNLISTED

    def refusal_of_name(self, host: str) -> Refusal | None:
        """Return why a name may not be told whatever it stands for, or None."""
        hopeless = self.names and not self.networks and not _is_address(host)
        return Refusal.UNLISTED if hopeless and not self.lists(host) else None

    def lists(self, host: str) -> bool:
        """Say whether a name (not an address) is listed."""
        if _is_address(host):
            return False
        name = host.lower().removesuffix(".")
        return any(_matches(pattern, name) for pattern in self.names)


def reach_of(entries: Iterable[str]) -> Reach:
    """Return what the setting notify_hosts means, or raise Invalid."""
    names, networks = [], []
    for entry in entries:
        network = _network(entry)
        if network is not None:
            networks.append(network)
        elif _NAME.match(entry.lower()):
            names.append(entry.lower())
        else:
            raise Invalid(
                f"notify_hosts has {entry[:256]!r}: write a host (hooks.example.com), all below a name"
                " (*.example.com), an address (10.1.2.3) or a network (10.0.0.0/8)"
            )
    return Reach(tuple(names), tuple(networks))


def _network(entry: str) -> Network | None:
    if "/" not in entry and not _is_address(entry):
        return None
    try:
        network = ip_network(entry)
    except ValueError as error:
        raise Invalid(f"notify_hosts has a network that cannot be read: {error}") from None
    if any(_within(network, never) for never in NEVER):
        raise Invalid(f"notify_hosts has {entry}: {Refusal.NEVER.partition(':')[0]}; take it out")
    return network


def _within(network: Network, other: Network) -> bool:
    return network.network_address in other and network.broadcast_address in other


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name == pattern


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, so that no other spelling of it is let through."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address
