"""Makes the notices and topics that tests send."""

from dataclasses import replace
from typing import Any

from trackside.domain.event import EventKind
from trackside.domain.job import ProjectId
from trackside.domain.notice import Notice
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.topic import Format, Topic

LINK = "https://trackside.example.com/jobs/j1"
NOW_MS = 1_794_795_247_123  # 2026-11-16 02:14:07 UTC
PROJECT = ProjectId("p1")
SECRET = "SEC-of-the-receiver"

OUT_OF_MEMORY = Reason(
    text="worker-5 ran out of memory (16.0 of 16 GiB)",
    code=ReasonCode.OUT_OF_MEMORY,
    task="worker-5",
    hint="fewer samples per step",
)


def make_notice(kind: EventKind = EventKind.FAILED, **changes: Any) -> Notice:
    """Return a notice of a job that failed."""
    notice = Notice(
        id="n" * 32,
        kind=kind,
        at_ms=NOW_MS,
        message="failed: worker-5 ran out of memory",
        job_id="j1",
        short_id="abc",
        job_name="llama-sft",
        project_id=PROJECT,
        workspace_id="0",
        owner="ana",
        phase=Phase.FAILED,
        attempt=3,
        reason=OUT_OF_MEMORY,
        culprit="worker-5",
    )
    return replace(notice, **changes)


def make_topic(address: str = "https://hooks.example.com/T0/B0", **changes: Any) -> Topic:
    """Return a topic of the project."""
    topic = Topic(name="ops", project_id=PROJECT, format=Format.JSON, address=address)
    return replace(topic, **changes)
