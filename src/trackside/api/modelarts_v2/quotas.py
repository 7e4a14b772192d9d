"""Knows the operations on job quotas: what they say, what they ask of the services, and their rows."""

from typing import Annotated

from msgspec import Meta, Struct

from trackside.api.modelarts_v2.checks import one_of
from trackside.api.operation import Call, Operation, Param
from trackside.domain.errors import Invalid, NotFound
from trackside.service.quotas import EVERYBODY

PATH = "/v2/{project_id}/training-quotas"
JOB_NUM = "job-num"
RESOURCES = (JOB_NUM,)
NO_LIMIT = -1
ITEMS_MAX = 10


class QuotaItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most jobs somebody may have, and how many they have."""

    resource: str
    quota: int
    used: int | None = None
    extra_info: str | None = None


class QuotasBody(Struct, frozen=True, kw_only=True):
    """Whose quotas to change, and how."""

    user_id: Annotated[str, Meta(min_length=1, max_length=64)]
    quotas: Annotated[list[QuotaItem], Meta(min_length=1, max_length=ITEMS_MAX)]


class QuotasAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody's quotas."""

    user_id: str | None = None
    quotas: list[QuotaItem]


async def show_quotas(call: Call) -> QuotasAnswer:
    """Tell how many jobs somebody may have, and has."""
    one_of("resource", call.query_one("resource") or JOB_NUM, RESOURCES)
    return QuotasAnswer(quotas=[await _item(call, call.query_one("user_id") or call.caller.user)])


async def modify_quotas(call: Call) -> QuotasAnswer:
    """Limit how many jobs somebody may have; -1 lifts the limit."""
    body: QuotasBody = call.body
    user = await _holder(call, body.user_id)
    for i, item in enumerate(body.quotas):
        one_of(f"quotas[{i}].resource", item.resource, RESOURCES)
        if item.quota == 0 or item.quota < NO_LIMIT:
            raise Invalid(f"quotas[{i}].quota must be 1 or more, or {NO_LIMIT} for no limit")
    for item in body.quotas:
        limit = None if item.quota == NO_LIMIT else item.quota
        await call.services.quotas.set(call.caller.project_id, user, limit)
    return QuotasAnswer(user_id=body.user_id, quotas=[await _item(call, body.user_id)])


async def _item(call: Call, user_id: str) -> QuotaItem:
    user, quotas = await _holder(call, user_id), call.services.quotas
    limit = await quotas.limit(call.caller.project_id, user)
    used = await quotas.used(call.caller.project_id, user)
    return QuotaItem(resource=JOB_NUM, quota=NO_LIMIT if limit is None else limit, used=used)


async def _holder(call: Call, user_id: str) -> str:
    """Return whose quota is meant: the id of the project stands for all of it."""
    if user_id == call.caller.project_id:
        return ""
    known = {user.name for user in await call.services.users.list()}
    if user_id != EVERYBODY and user_id not in known and user_id != call.caller.user:
        raise NotFound(f"there is no user {user_id[:64]!r}")
    return user_id


QUOTA_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="ShowTrainingQuotas",
        method="GET",
        path=PATH,
        action="modelarts:quota:get",
        handler=show_quotas,
        summary="Tell how many jobs a user may have, and has",
        response=QuotasAnswer,
        query=(
            Param(name="user_id", max_length=64, description="The caller when absent."),
            Param(name="resource", choices=RESOURCES, description=f"{JOB_NUM} when absent."),
        ),
    ),
    Operation(
        name="ModifyTrainingQuotas",
        method="PUT",
        path=PATH,
        action="modelarts:quota:update",
        handler=modify_quotas,
        summary="Limit how many jobs a user, or the project, may have",
        body=QuotasBody,
        response=QuotasAnswer,
    ),
)
