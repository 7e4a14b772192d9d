"""Knows how a v2 job says who is told of it, and which events there are to be told of."""

from collections.abc import Mapping
from typing import Any

from trackside.api.modelarts_v2.translate_spec import DIALECT
from trackside.api.modelarts_v2.wire_response import EventCategories, EventCategory
from trackside.api.operation import Call
from trackside.domain.event import EventKind
from trackside.domain.notice import EVENT_NAMES
from trackside.service.topics import Asked

# Name and meaning of each event, in the order of the vendor's list.
_CATEGORIES: dict[EventKind, tuple[str, str]] = {
    EventKind.STARTED: ("Job started", "All tasks of the job run."),
    EventKind.COMPLETED: ("Job completed", "The job ended well."),
    EventKind.FAILED: ("Job failed", "The job ended badly; the message says why."),
    EventKind.STOPPED: ("Job terminated", "Somebody stopped the job, or its time was over."),
    EventKind.RESTARTED: ("Job restarted", "A part of the job failed and is started again."),
    EventKind.HANGED: ("Job suspected to hang", "The job runs and nothing moves any more."),
    EventKind.PREEMPTED: ("Job preempted", "A job of higher priority took its place."),
}


def asked_of(declared: Mapping[str, Any]) -> Asked | None:
    """Return who a job of this dialect wants to be told."""
    spec = (declared.get(DIALECT) or {}).get("spec") or {}
    notification = spec.get("notification") or {}
    topic = notification.get("topic_urn")
    return Asked(topic=topic, events=tuple(notification.get("events") or ())) if topic else None


async def list_event_categories(call: Call) -> EventCategories:
    """List the events that somebody can be told of."""
    del call  # they are the same for every flavor
    return EventCategories(
        event_categories=[
            EventCategory(id=EVENT_NAMES[kind], name=name, description=description, notification=True)
            for kind, (name, description) in _CATEGORIES.items()
        ]
    )
