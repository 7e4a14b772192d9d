"""Knows how users come and go."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trackside.domain.errors import Invalid, NameTaken, NotFound
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import ProjectId
from trackside.ports import IdentityStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
GRANTABLE = (UserRole.ADMIN, UserRole.USER, UserRole.VIEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUser:
    """A user just made, with the one sight of its token."""

    user: User
    token: str


class Users:
    """Add, list and remove those who may call."""

    def __init__(
        self,
        *,
        store: IdentityStore,
        make: Callable[[str, ProjectId, UserRole], NewUser],
        refreshed: Callable[[Sequence[User]], None],
    ) -> None:
        self._store = store
        self._make = make
        self._refreshed = refreshed

    async def add(self, caller: Caller, name: str, role: str) -> NewUser:
        """Make a user of the caller's project."""
        if not _NAME.match(name):
            raise Invalid(f"{name!r} is not a user name: use up to 64 letters, digits, dots, - and _")
        if role not in GRANTABLE:
            raise Invalid(f"{role!r} is not a role; there are {', '.join(GRANTABLE)}")
        if any(user.name == name for user in await self._store.users()):
            raise NameTaken(f"a user called {name} exists already")
        made = self._make(name, caller.project_id, UserRole(role))
        await self._store.put_user(made.user)
        await self._refresh()
        return made

    async def list(self) -> tuple[User, ...]:
        """Return all users."""
        return await self._store.users()

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove a user; its keys stop working at once."""
        if name == caller.user:
            raise Invalid("you cannot remove yourself: ask another admin")
        if all(user.name != name for user in await self._store.users()):
            raise NotFound(f"there is no user called {name!r}")
        await self._store.delete_user(name)
        await self._refresh()

    async def _refresh(self) -> None:
        self._refreshed(await self._store.users())
