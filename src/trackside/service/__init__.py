"""The use cases: one function per verb a user can say. Knows no HTTP, no SQL, no vendor's JSON."""

from dataclasses import dataclass

from trackside.service.catalog import Catalog
from trackside.service.jobs import Jobs
from trackside.service.logs import Logs
from trackside.service.metrics import Metrics
from trackside.service.objects import Objects
from trackside.service.users import Users


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a dialect may ask for."""

    jobs: Jobs
    metrics: Metrics
    logs: Logs
    catalog: Catalog
    users: Users
    objects: Objects


__all__ = ["Catalog", "Jobs", "Logs", "Metrics", "Objects", "Services", "Users"]
