"""Knows who may call: projects, users and their keys."""

from dataclasses import dataclass, field
from enum import StrEnum

from trackside.domain.job import ProjectId


class UserRole(StrEnum):
    """What a user may do; identity policies refine it later."""

    ADMIN = "admin"
    USER = "user"
    VIEWER = "viewer"
    AGENT = "agent"  # a node's agent: may report and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Someone who may sign requests."""

    name: str
    project_id: ProjectId
    role: UserRole
    access_key: str
    secret_key: str = field(repr=False)
    token_digest: str = field(repr=False)  # sha256 of the bearer token; the token itself is not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request, once that is proved."""

    user: str
    project_id: ProjectId
    role: UserRole
