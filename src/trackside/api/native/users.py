"""Knows the rows of Trackside's own API about users."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation


class UserRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who to add."""

    name: str
    role: str = "user"


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user without secrets."""

    name: str
    project_id: str
    role: str
    access_key: str


class UserKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A new user's keys, shown this once."""

    name: str
    project_id: str
    role: str
    access_key: str
    secret_key: str
    token: str


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """All users."""

    users: list[UserView]


async def list_users(call: Call) -> UserList:
    """List users without their secrets."""
    users = await call.services.users.list()
    return UserList(
        users=[
            UserView(name=u.name, project_id=u.project_id, role=u.role, access_key=u.access_key)
            for u in users
        ]
    )


async def add_user(call: Call) -> UserKeys:
    """Add a user and show its keys this once."""
    made = await call.services.users.add(call.caller, call.body.name, call.body.role)
    return UserKeys(
        name=made.user.name,
        project_id=made.user.project_id,
        role=made.user.role,
        access_key=made.user.access_key,
        secret_key=made.user.secret_key,
        token=made.token,
    )


async def remove_user(call: Call) -> None:
    """Remove a user."""
    await call.services.users.remove(call.caller, call.path["name"])


OPERATIONS = (
    Operation(
        name="ListUsers",
        method="GET",
        path=f"{PREFIX}/users",
        action="trackside:user:list",
        handler=list_users,
        summary="List users without their secrets",
        response=UserList,
    ),
    Operation(
        name="AddUser",
        method="POST",
        path=f"{PREFIX}/users",
        action="trackside:user:create",
        handler=add_user,
        summary="Add a user and show its keys this once",
        body=UserRequest,
        response=UserKeys,
        status=201,
    ),
    Operation(
        name="RemoveUser",
        method="DELETE",
        path=f"{PREFIX}/users/{{name}}",
        action="trackside:user:delete",
        handler=remove_user,
        summary="Remove a user; its keys stop working at once",
    ),
)
