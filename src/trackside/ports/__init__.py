"""The seams of the system: what the inside needs from the outside, as Protocols, a module for each subject.

Everybody imports them from here; which module one is in is nobody else's business.
"""

from trackside.ports.clock import Clock
from trackside.ports.documents import DocumentStore, PoolStore, TopicStore
from trackside.ports.engine import Engine, Node
from trackside.ports.identity import IdentityStore
from trackside.ports.jobs import EventPage, EventQuery, JobPage, JobQuery, JobStore, Update
from trackside.ports.logs import LogSlice, LogStore, Snapshot, StackStore
from trackside.ports.metrics import (
    LatestColumns,
    LatestOfMetric,
    MeanColumns,
    MeansInColumns,
    MetricStore,
    SaysWhenReady,
    SeriesKey,
)
from trackside.ports.objects import ObjectInfo, ObjectStore
from trackside.ports.outbox import Delivery, Outbox

__all__ = [
    "Clock",
    "Delivery",
    "DocumentStore",
    "Engine",
    "EventPage",
    "EventQuery",
    "IdentityStore",
    "JobPage",
    "JobQuery",
    "JobStore",
    "LatestColumns",
    "LatestOfMetric",
    "LogSlice",
    "LogStore",
    "MeanColumns",
    "MeansInColumns",
    "MetricStore",
    "Node",
    "ObjectInfo",
    "ObjectStore",
    "Outbox",
    "PoolStore",
    "SaysWhenReady",
    "SeriesKey",
    "Snapshot",
    "StackStore",
    "TopicStore",
    "Update",
]
