"""At which addresses a host may be told, and what whoever adds a topic hears otherwise."""

import socket

import pytest

from tests.unit.notify.making import make_topic
from trackside.clock import SystemClock
from trackside.domain.errors import Invalid
from trackside.domain.reach import reach_of
from trackside.domain.topic import Format
from trackside.notify.route import NotAllowed, Route
from trackside.notify.sender import Sender

pytestmark = pytest.mark.anyio
OWN_PORT = 8470


def route_of(*entries: str) -> Route:
    route = Route(reach_of(entries))
    route.own_port = OWN_PORT
    return route


def own_address() -> str:
    """Return an address of this machine that is no loopback one, where there is any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            pytest.skip("this machine has only its loopback")
        return str(probe.getsockname()[0])


async def test_addresses_are_returned_as_they_are_connected_to() -> None:
    assert await route_of().addresses("127.0.0.1", 80) == ["127.0.0.1"]
    assert await route_of("127.0.0.0/8").addresses("localhost", 80) == ["127.0.0.1"]
    assert await route_of().addresses("2130706433", 80) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "::ffff:169.254.169.254"]
)
async def test_no_spelling_of_a_metadata_service_is_let_through(host: str) -> None:
    with pytest.raises(NotAllowed, match="metadata"):
        await route_of().addresses(host, 80)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "localhost", "0.0.0.0", "::1", "::ffff:127.0.0.1"]
)
async def test_the_server_never_tells_itself(host: str) -> None:
    with pytest.raises(NotAllowed, match="own port"):
        await route_of().addresses(host, OWN_PORT)
    assert await route_of().addresses(host, OWN_PORT + 1)


async def test_nor_at_the_machines_other_addresses() -> None:
    with pytest.raises(NotAllowed, match="own port"):
        await route_of().addresses(own_address(), OWN_PORT)


async def test_another_machine_may_listen_on_the_same_port() -> None:
    assert await route_of().addresses("203.0.113.5", OWN_PORT) == ["203.0.113.5"]


async def test_only_the_allowed_addresses_of_a_name_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(_: str, port: int, *__: object, **___: object) -> list[tuple[object, ...]]:
        addresses = ("169.254.169.254", "10.0.0.5", "203.0.113.5", "10.0.0.5")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert await route_of().addresses("hooks.example.com", 80) == ["10.0.0.5", "203.0.113.5"]
    assert await route_of("10.0.0.0/8").addresses("hooks.example.com", 80) == ["10.0.0.5"]
    with pytest.raises(NotAllowed):
        await route_of("192.0.2.0/24").addresses("hooks.example.com", 80)


def sender_of(route: Route) -> Sender:
    return Sender(clock=SystemClock(), link=str, mailer=None, route=route)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://169.254.169.254/latest/meta-data/very-secret", "metadata"),
        (f"http://localhost:{OWN_PORT}/very-secret", "own port"),
        ("https://hooks.example.net/very-secret", "notify_hosts"),
        ("https://10.0.0.1/very-secret", "notify_hosts"),
        (f"https://{'x' * 64}.example.com/very-secret", "typing error"),
    ],
)
async def test_a_topic_that_may_not_be_told_is_refused_with_what_to_do(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        await sender_of(route_of("*.example.com", "localhost")).check(make_topic(address=url))
    assert "very-secret" not in str(caught.value)


async def test_a_topic_whose_host_is_not_known_yet_and_a_mailbox_are_taken() -> None:
    await sender_of(route_of("*.invalid")).check(make_topic(address="https://nobody.invalid/x"))
    mailbox = make_topic(format=Format.EMAIL, address="ana@example.com")
    await sender_of(route_of("10.0.0.0/8")).check(mailbox)
