"""Lets changes that read first and write later happen one after the other; knows nothing of what changes."""

import asyncio
from weakref import WeakKeyDictionary

from trackside.api.operation import Call
from trackside.service.documents import Documents

_turns: WeakKeyDictionary[Documents, asyncio.Lock] = WeakKeyDictionary()  # one for each server in the process


def alone(call: Call) -> asyncio.Lock:
    """Return what a change must hold so that no other change of this dialect comes between."""
    return _turns.setdefault(call.services.documents, asyncio.Lock())
