"""Knows how to read the orders of a server that is newer than this agent: what is understood is taken.

One order that is not understood keeps none of the others from being acted on. Refuses to know what is done
about it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

import trackside
from trackside.domain.exchange import Errand, Launch, Orders, Stop, TaskKey

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
UNKNOWN = (
    f"not known to this agent's version ({trackside.__version__}):"
    " bring trackside on this node to the server's version and restart its agent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What was not understood, so far that it can be answered."""

    launches: tuple[TaskKey, ...] = ()
    errands: tuple[Errand, ...] = ()  # only id, key and kind


class _Loose(msgspec.Struct, frozen=True):
    version: int
    launch: tuple[msgspec.Raw, ...] = ()
    stop: tuple[Stop, ...] = ()
    errands: tuple[msgspec.Raw, ...] = ()


class _AnyLaunch(msgspec.Struct, frozen=True):
    key: TaskKey


class _AnyErrand(msgspec.Struct, frozen=True):
    id: str
    key: TaskKey
    kind: str


_strict = msgspec.json.Decoder(Orders)
_loose = msgspec.json.Decoder(_Loose)
_launch = msgspec.json.Decoder(Launch)
_errand = msgspec.json.Decoder(Errand)
_any_launch = msgspec.json.Decoder(_AnyLaunch)
_any_errand = msgspec.json.Decoder(_AnyErrand)


def read_orders(data: bytes) -> tuple[Orders, Unread]:
    """Return the orders, and what of them is not understood; raise MsgspecError if they are none at all."""
    try:
        return _strict.decode(data), Unread()
    except msgspec.ValidationError:
        found = _loose.decode(data)
    launches, strange_launches = _sorted_out(_launch, found.launch)
    errands, strange_errands = _sorted_out(_errand, found.errands)
    orders = Orders(version=found.version, launch=tuple(launches), stop=found.stop, errands=tuple(errands))
    bare_launches, _ = _sorted_out(_any_launch, strange_launches)
    bare_errands, _ = _sorted_out(_any_errand, strange_errands)
    _log.warning("%d launches and %d errands are %s", len(strange_launches), len(strange_errands), UNKNOWN)
    return orders, Unread(
        launches=tuple(one.key for one in bare_launches),
        errands=tuple(Errand(id=one.id, key=one.key, kind=one.kind) for one in bare_errands),
    )


def _sorted_out(
    decoder: "msgspec.json.Decoder[_T]", items: Sequence[msgspec.Raw]
) -> tuple[list[_T], list[msgspec.Raw]]:
    """Return what the decoder understands, and the rest as it came."""
    understood: list[_T] = []
    strange: list[msgspec.Raw] = []
    for item in items:
        try:
            understood.append(decoder.decode(item))
        except msgspec.ValidationError:
            strange.append(item)
    return understood, strange
