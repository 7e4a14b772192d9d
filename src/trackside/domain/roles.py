"""Knows the built-in policies: what each role may do. docs/access.md has them as a table."""

from trackside.domain.identity import UserRole
from trackside.domain.policy import Effect, Policy, Statement, decide

_READING = (
    "modelarts:*:get",
    "modelarts:*:list",
    "modelarts:trainJob:logExport",
    "paidlc:GetDashboard",
    "paidlc:GetJob",
    "paidlc:GetJobEvents",
    "paidlc:GetJobMetrics",
    "paidlc:GetJobSanityCheckResult",
    "paidlc:GetJobTemplate",
    "paidlc:GetMetrics",
    "paidlc:GetPodEvents",
    "paidlc:GetPodLogs",
    "paidlc:GetRayDashboard",
    "paidlc:GetSignal",
    "paidlc:GetTensorboard",
    "paidlc:List*",
    "iam:*:list",
    "trackside:job:get",
    "trackside:job:list",
    "trackside:node:list",
    "trackside:pool:get",
    "trackside:pool:list",
    "trackside:topic:list",
    "trackside:object:list",
    "trackside:link:get",
    "trackside:credential:create",
)
_WORKING = (
    "modelarts:train*",  # who works in pools does not divide the machines
    "modelarts:*:get",
    "modelarts:*:list",
    "paidlc:*",
    "iam:*:list",
    "trackside:job:*",
    "trackside:node:list",
    "trackside:pool:get",
    "trackside:pool:list",
    "trackside:topic:list",
    "trackside:object:*",
    "trackside:link:get",
    "trackside:credential:create",
)
ACTIONS: dict[UserRole, tuple[str, ...]] = {
    UserRole.ADMIN: ("*",),
    UserRole.USER: _WORKING,
    UserRole.VIEWER: _READING,
    UserRole.AGENT: ("trackside:agent:*",),
}
BUILT_IN: dict[str, Policy] = {
    str(role): Policy(
        name=str(role), statements=(Statement(effect=Effect.ALLOW, actions=actions, sid=f"{role} role"),)
    )
    for role, actions in ACTIONS.items()
}


def permits(role: UserRole, action: str) -> bool:
    """Say whether a role's built-in policy allows an action."""
    return decide([BUILT_IN[role]], action, user="", thing=None).allowed
