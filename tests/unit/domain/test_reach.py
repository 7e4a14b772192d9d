"""Where notices may go, and what is never let through however it is spelled."""

from ipaddress import ip_address

import pytest

from trackside.domain.errors import Invalid
from trackside.domain.reach import Reach, Refusal, reach_of

LISTED = reach_of(["*.example.com", "Relay.local", "10.0.0.0/8", "192.0.2.7", "2001:db8::/32"])


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "100.100.100.200",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_metadata_services_are_never_told(text: str) -> None:
    every = reach_of(["*", "0.0.0.0/0", "::/0"])
    for reach in (Reach(), every):
        assert reach.refusal("hooks.example.com", ip_address(text)) is Refusal.NEVER
        assert reach.refusal(text, ip_address(text)) is Refusal.NEVER


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "10.1.2.3", "192.168.1.1", "203.0.113.5", "::1", "2001:db8::1"]
)
def test_everything_else_is_told_where_nothing_is_listed(text: str) -> None:
    assert Reach().refusal(text, ip_address(text)) is None
    assert Reach().refusal_of_name(text) is None


@pytest.mark.parametrize(
    ("host", "address", "allowed"),
    [
        ("hooks.example.com", "203.0.113.5", True),
        ("HOOKS.Example.com.", "203.0.113.5", True),
        ("a.b.example.com", "203.0.113.5", True),
        ("example.com", "203.0.113.5", False),
        ("notexample.com", "203.0.113.5", False),
        ("example.com.evil.net", "203.0.113.5", False),
        ("relay.local", "203.0.113.5", True),
        ("other.local", "10.9.9.9", True),
        ("10.9.9.9", "10.9.9.9", True),
        ("::ffff:10.9.9.9", "::ffff:10.9.9.9", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.8", "192.0.2.8", False),
        ("2001:db8::5", "2001:db8::5", True),
        ("127.0.0.1", "127.0.0.1", False),
    ],
)
def test_only_what_is_listed_is_told(host: str, address: str, allowed: bool) -> None:
    assert LISTED.refusal(host, ip_address(address)) is (None if allowed else Refusal.UNLISTED)


def test_a_name_that_no_address_could_save_is_refused_before_it_is_resolved() -> None:
    names = reach_of(["*.example.com"])
    assert names.refusal_of_name("evil.net") is Refusal.UNLISTED
    assert names.refusal_of_name("hooks.example.com") is None
    assert LISTED.refusal_of_name("evil.net") is None  # it may be in a listed network


def test_every_name_is_not_every_address() -> None:
    every_name = reach_of(["*"])
    assert every_name.refusal("hooks.example.com", ip_address("203.0.113.5")) is None
    assert every_name.refusal("203.0.113.5", ip_address("203.0.113.5")) is Refusal.UNLISTED


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "write a host"),
        ("https://example.com", "cannot be read"),
        ("ex*mple.com", "write a host"),
        ("*example.com", "write a host"),
        ("*x", "write a host"),
        ("hooks.example.com:443", "write a host"),
        ("10.1.0.0/8", "cannot be read"),
        ("10.0.0.0/40", "cannot be read"),
        ("169.254.169.254", "take it out"),
        ("169.254.0.0/24", "take it out"),
        ("fe80::/64", "take it out"),
    ],
)
def test_what_cannot_be_listed_is_refused_with_a_reason(entry: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        reach_of([entry])
