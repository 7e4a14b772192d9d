"""Knows which actions each role may take; the only place that says so."""

from fnmatch import fnmatchcase
from functools import lru_cache

from trackside.domain.identity import UserRole

ACTIONS: dict[UserRole, tuple[str, ...]] = {
    UserRole.ADMIN: (
        "modelarts:*",
        "iam:*",
        "trackside:job:*",
        "trackside:node:*",
        "trackside:user:*",
        "trackside:object:*",
    ),
    UserRole.USER: (
        "modelarts:*",
        "iam:*:list",
        "trackside:job:*",
        "trackside:node:list",
        "trackside:object:*",
    ),
    UserRole.VIEWER: ("*:get", "*:list", "modelarts:trainJob:logExport"),
    UserRole.AGENT: ("trackside:agent:*",),
}
NEVER: dict[UserRole, tuple[str, ...]] = {
    UserRole.VIEWER: ("trackside:user:*", "trackside:agent:*"),
}


@lru_cache(maxsize=4096)
def permits(role: UserRole, action: str) -> bool:
    """Say whether a role may take an action. Nothing that is not listed is permitted."""
    if any(fnmatchcase(action, pattern) for pattern in NEVER.get(role, ())):
        return False
    return any(fnmatchcase(action, pattern) for pattern in ACTIONS[role])
