"""Knows the rows of Trackside's own API about access: policies, who has which, and temporary keys."""

from typing import Any

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation
from trackside.auth.temporary import SECONDS_DEFAULT, TemporaryKeys
from trackside.domain.errors import Forbidden
from trackside.domain.policy_document import write_policy
from trackside.service.policies import KnownPolicy, Policies

SECURITY_TOKEN_HEADERS = ("x-security-token", "x-acs-security-token")


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, and who has it."""

    name: str
    built_in: bool
    users: tuple[str, ...]
    document: dict[str, Any]


class PolicyList(msgspec.Struct, frozen=True, kw_only=True):
    """All policies that can be granted."""

    policies: list[PolicyView]


class GrantView(msgspec.Struct, frozen=True, kw_only=True):
    """The policies a user has."""

    user: str
    policies: tuple[str, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May this user do that?"""

    user: str
    action: str
    job: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is allowed, and which statement says so."""

    user: str
    action: str
    job: str | None
    allowed: bool
    policy: str | None
    statement: int | None
    sid: str
    text: str
    policies: tuple[str, ...]


class CredentialsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """For how long."""

    seconds: int = SECONDS_DEFAULT


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Temporary keys, shown this once."""

    access_key: str
    secret_key: str
    security_token: str
    expires_s: int


def operations(policies: Policies, temporary: TemporaryKeys) -> tuple[Operation, ...]:
    """Return the rows."""
    return (
        *_reading_rows(policies),
        *_writing_rows(policies),
        _try_row(policies),
        *_grant_rows(policies),
        _credentials_row(temporary),
    )


def _reading_rows(policies: Policies) -> tuple[Operation, ...]:
    async def list_policies(call: Call) -> PolicyList:
        return PolicyList(policies=[_view(one) for one in policies.list(call.caller)])

    async def show_policy(call: Call) -> PolicyView:
        return _view(policies.show(call.caller, call.path["name"]))

    return (
        Operation(
            name="ListPolicies",
            method="GET",
            path=f"{PREFIX}/policies",
            action="trackside:policy:list",
            handler=list_policies,
            summary="List the policies that can be granted",
            response=PolicyList,
        ),
        Operation(
            name="ShowPolicy",
            method="GET",
            path=f"{PREFIX}/policies/{{name}}",
            action="trackside:policy:get",
            handler=show_policy,
            summary="Show a policy and who has it",
            response=PolicyView,
        ),
    )


def _writing_rows(policies: Policies) -> tuple[Operation, ...]:
    async def put_policy(call: Call) -> PolicyView:
        return _view(await policies.put(call.caller, call.path["name"], call.body))

    async def remove_policy(call: Call) -> None:
        await policies.remove(call.caller, call.path["name"])

    return (
        Operation(
            name="PutPolicy",
            method="PUT",
            path=f"{PREFIX}/policies/{{name}}",
            action="trackside:policy:update",
            handler=put_policy,
            summary="Store or replace a policy; it counts at once",
            body=dict,
            response=PolicyView,
        ),
        Operation(
            name="RemovePolicy",
            method="DELETE",
            path=f"{PREFIX}/policies/{{name}}",
            action="trackside:policy:delete",
            handler=remove_policy,
            summary="Remove a policy that nobody has",
        ),
    )


def _try_row(policies: Policies) -> Operation:
    async def try_policy(call: Call) -> Answer:
        asked: Question = call.body
        decision = policies.would(call.caller, asked.user, asked.action, asked.job)
        return Answer(
            user=asked.user,
            action=asked.action,
            job=asked.job,
            allowed=decision.allowed,
            policy=decision.policy,
            statement=decision.statement,
            sid=decision.sid,
            text=decision.text,
            policies=policies.granted(call.caller, asked.user),
        )

    return Operation(
        name="TryPolicy",
        method="POST",
        path=f"{PREFIX}/policies/try",
        action="trackside:policy:try",
        handler=try_policy,
        summary="Say whether a user may do something, and which statement says so",
        body=Question,
        response=Answer,
    )


def _grant_rows(policies: Policies) -> tuple[Operation, ...]:
    async def list_grants(call: Call) -> GrantView:
        user = call.path["name"]
        return GrantView(user=user, policies=policies.granted(call.caller, user))

    async def grant(call: Call) -> GrantView:
        user = call.path["name"]
        return GrantView(user=user, policies=await policies.grant(call.caller, user, call.path["policy"]))

    async def revoke(call: Call) -> GrantView:
        user = call.path["name"]
        return GrantView(user=user, policies=await policies.revoke(call.caller, user, call.path["policy"]))

    return (
        Operation(
            name="ListUserPolicies",
            method="GET",
            path=f"{PREFIX}/users/{{name}}/policies",
            action="trackside:user:get",
            handler=list_grants,
            summary="List the policies a user has",
            response=GrantView,
        ),
        Operation(
            name="GrantPolicy",
            method="PUT",
            path=f"{PREFIX}/users/{{name}}/policies/{{policy}}",
            action="trackside:user:update",
            handler=grant,
            summary="Give a user a policy",
            response=GrantView,
        ),
        Operation(
            name="RevokePolicy",
            method="DELETE",
            path=f"{PREFIX}/users/{{name}}/policies/{{policy}}",
            action="trackside:user:update",
            handler=revoke,
            summary="Take a policy from a user, at once",
            response=GrantView,
        ),
    )


def _credentials_row(temporary: TemporaryKeys) -> Operation:
    async def create_credentials(call: Call) -> Credentials:
        if any(name in call.headers for name in SECURITY_TOKEN_HEADERS):
            raise Forbidden("Temporary keys cannot be prolonged by themselves: sign with lasting keys.")
        seconds = call.body.seconds if call.body else SECONDS_DEFAULT
        made = temporary.issue(call.caller, seconds)
        return Credentials(
            access_key=made.access_key,
            secret_key=made.secret_key,
            security_token=made.security_token,
            expires_s=made.expires_s,
        )

    return Operation(
        name="CreateCredentials",
        method="POST",
        path=f"{PREFIX}/credentials",
        action="trackside:credential:create",
        handler=create_credentials,
        summary="Make temporary keys that act for the caller; they are shown this once",
        body=CredentialsRequest,
        body_required=False,
        response=Credentials,
        status=201,
    )


def _view(known: KnownPolicy) -> PolicyView:
    return PolicyView(
        name=known.policy.name,
        built_in=known.built_in,
        users=known.users,
        document=write_policy(known.policy),
    )
