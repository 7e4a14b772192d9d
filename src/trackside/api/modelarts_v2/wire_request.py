"""Knows the bodies of all operations but create; refuses to know what any of it means."""

from typing import Annotated

from msgspec import Meta

from trackside.api.modelarts_v2.wire_algorithm import (
    Text,
    Wire,
)
from trackside.api.modelarts_v2.wire_create import (
    Annotations,
    Description,
    Endpoints,
    Notification,
    Priority,
    WorkspaceId,
)

PAGE_MAX = 50
OFFSET_MAX = 2**31 - 1
FILTER_KEYS = (
    "id",
    "name",
    "phase",
    "status",
    "user_name",
    "create_time",
    "end_time",
    "kind",
    "job_type",
    "description",
    "pool_id",
)
SORT_KEYS = ("create_time", "name", "phase", "status", "user_name", "start_time", "end_time")
TRAIN_TYPES = ("job",)
FILTER_OPERATORS = ("between", "like", "in", "not")
ORDERS = ("asc", "desc")
ACTION_TYPES = ("terminate",)
BATCH_MAX = 100

Order = Annotated[str, Meta(extra_json_schema={"enum": list(ORDERS)})]


class Filter(Wire):
    """One condition of a search."""

    key: Annotated[str, Meta(extra_json_schema={"enum": list(FILTER_KEYS)})]
    operator: Annotated[str, Meta(extra_json_schema={"enum": list(FILTER_OPERATORS)})]
    value: Annotated[list[Text], Meta(max_length=100)]


class TagFilter(Wire):
    """One condition on tags."""

    key: Text
    values: list[Text] | None = None


class JobSearchBody(Wire):
    """Ask for some jobs."""

    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] | None = None
    sort_by: Annotated[str, Meta(extra_json_schema={"enum": list(SORT_KEYS)})] | None = None
    order: Order | None = None
    group_by: Annotated[str, Meta(max_length=64)] | None = None
    workspace_id: WorkspaceId | None = None
    train_type: Annotated[str, Meta(extra_json_schema={"enum": list(TRAIN_TYPES)})] | None = None
    tags: Annotated[list[TagFilter], Meta(max_length=10)] | None = None
    host_ips: Annotated[list[Text], Meta(max_length=10)] | None = None
    filters: Annotated[list[Filter], Meta(max_length=32)] | None = None


class ActionBody(Wire):
    """Ask for something to be done to a job."""

    action_type: Annotated[str, Meta(extra_json_schema={"enum": list(ACTION_TYPES)})]


class ChangeSchedulePolicy(Wire):
    """What may change of how a job queues."""

    priority: Priority | None = None
    preemptible: bool | None = None


class ChangeSpec(Wire):
    """What may change of a job's spec."""

    notification: Notification | None = None
    schedule_policy: ChangeSchedulePolicy | None = None


class ChangeMetadata(Wire):
    """What may change of a job's metadata; the vendor's key is in the singular here."""

    annotation: Annotations | None = None
    annotations: Annotations | None = None


class ChangeJobBody(Wire):
    """Ask for a job to be changed."""

    description: Description | None = None
    spec: ChangeSpec | None = None
    endpoints: Endpoints | None = None
    metadata: ChangeMetadata | None = None


class BatchDeleteMetadata(Wire):
    """Name one job."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]


class BatchDeleteItem(Wire, kw_only=True):
    """One job to delete."""

    kind: Text | None = None
    metadata: BatchDeleteMetadata


class BatchDeleteBody(Wire):
    """Ask for many jobs to be deleted."""

    jobs: Annotated[list[BatchDeleteItem], Meta(min_length=1, max_length=BATCH_MAX)]


class ReportBody(Wire):
    """What a task reports about itself."""

    type: Annotated[str, Meta(min_length=1, max_length=256)]
