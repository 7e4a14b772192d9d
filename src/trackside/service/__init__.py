"""The use cases: one function per verb a user can say. Knows no HTTP, no SQL, no vendor's JSON."""

from dataclasses import dataclass

from trackside.service.attempts import Attempts
from trackside.service.catalog import Catalog
from trackside.service.documents import Documents
from trackside.service.jobs import Jobs
from trackside.service.logs import Logs
from trackside.service.metrics import Metrics
from trackside.service.objects import Objects
from trackside.service.pending import Pending
from trackside.service.pools import Pools
from trackside.service.quotas import JobQuotas
from trackside.service.stacks import StackTaker
from trackside.service.tokens import Tokens
from trackside.service.topics import Topics
from trackside.service.users import Users


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a dialect may ask for."""

    jobs: Jobs
    attempts: Attempts
    metrics: Metrics
    logs: Logs
    catalog: Catalog
    users: Users
    objects: Objects
    documents: Documents
    tokens: Tokens
    pools: Pools
    quotas: JobQuotas
    pending: Pending
    topics: Topics
    stacks: StackTaker


__all__ = [
    "Attempts",
    "Catalog",
    "Documents",
    "JobQuotas",
    "Jobs",
    "Logs",
    "Metrics",
    "Objects",
    "Pending",
    "Pools",
    "Services",
    "StackTaker",
    "Tokens",
    "Topics",
    "Users",
]
