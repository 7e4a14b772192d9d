"""Knows which policies there are and who has which; answers from memory and writes changes through.

A user's role is the policy it starts with. Once somebody grants or revokes, the user has exactly the policies
that are listed for it; nothing is left of the role then.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trackside.domain.errors import Forbidden, Invalid, JobNotFound, NotFound
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import ProjectId
from trackside.domain.policy import Book, Decision, Policy, decide
from trackside.domain.policy_document import read_policy, write_policy
from trackside.domain.roles import BUILT_IN
from trackside.ports import JobStore
from trackside.service.documents import Documents
from trackside.service.things import job_named, job_thing, thing_in_path

POLICY_KIND = "policy"
GRANT_KIND = "grant"
POLICIES_OF_USER_MAX = 20
GRANTABLE_ROLES = (UserRole.ADMIN, UserRole.USER, UserRole.VIEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPolicy:
    """A policy, and who has it."""

    policy: Policy
    built_in: bool
    users: tuple[str, ...]


class Policies:
    """Decide what callers may do, and keep the policies that say so."""

    def __init__(self, *, documents: Documents, store: JobStore) -> None:
        self._documents = documents
        self._store = store
        self._users: dict[str, User] = {}
        self._policies: dict[tuple[ProjectId, str], Policy] = {}
        self._grants: dict[str, tuple[str, tuple[str, ...]]] = {}  # by user: access key, policies
        self._books: dict[tuple[str, UserRole], Book] = {}
        self._changing = asyncio.Lock()  # memory changes in the order of the database

    async def load(self, projects: Iterable[ProjectId]) -> None:
        """Read everything that is stored; before that everybody has the role's policy."""
        for project_id in projects:
            reader = Caller(user="", project_id=project_id, role=UserRole.ADMIN)
            for name, document in await self._documents.list(reader, POLICY_KIND):
                self._policies[project_id, name] = read_policy(name, document)
            for user, grant in await self._documents.list(reader, GRANT_KIND):
                self._grants[user] = (grant["access_key"], tuple(grant["policies"]))
        self._books.clear()

    def users_changed(self, users: Iterable[User]) -> None:
        """Take over who there is."""
        self._users = {user.name: user for user in users}
        self._books.clear()

    def caller_named(self, name: str) -> Caller | None:
        """Return a user as a caller; None if there is none of that name."""
        user = self._users.get(name)
        return None if user is None else Caller(user=user.name, project_id=user.project_id, role=user.role)

    def check(self, caller: Caller, action: str, path: Mapping[str, str]) -> None:
        """Raise Forbidden, saying why, unless the caller may do the action to what the path names."""
        decision = self._book(caller).decide(
            action,
            user=caller.user,
            look=lambda: thing_in_path(self._store, caller.user, caller.project_id, path),
        )
        if not decision.allowed:
            raise Forbidden(f"User {caller.user} may not do {action}: {decision.text}.")

    def would(self, caller: Caller, user: str, action: str, job: str | None) -> Decision:
        """Say what would be decided if a user of the caller's project asked to do this to a job."""
        asker = self._user(caller, user)
        found = None
        if job is not None:
            found = job_named(self._store, caller.project_id, job)
            if found is None:
                raise JobNotFound(f"there is no job {job!r} in this project")
        policies = self._named(asker.project_id, self.names_of(asker))
        return decide(policies, action, user=user, thing=None if found is None else job_thing(found, user))

    def list(self, caller: Caller) -> list[KnownPolicy]:
        """Return the policies that can be granted, the built-in ones first."""
        roles = [self.show(caller, role) for role in GRANTABLE_ROLES]
        own = sorted(name for project_id, name in self._policies if project_id == caller.project_id)
        return roles + [self.show(caller, name) for name in own]

    def show(self, caller: Caller, name: str) -> KnownPolicy:
        """Return one policy."""
        found = self._find(caller.project_id, name)
        if found is None or name == UserRole.AGENT:  # that one is for machines
            raise NotFound(f"there is no policy called {name!r}")
        return KnownPolicy(policy=found, built_in=name in BUILT_IN, users=self._holders(caller, name))

    async def put(self, caller: Caller, name: str, document: Any) -> KnownPolicy:
        """Store or replace a policy; it counts at once."""
        policy = read_policy(name, document)
        _refuse_built_in(name)
        async with self._changing:
            await self._documents.put(caller, POLICY_KIND, name, write_policy(policy))
            self._policies[caller.project_id, name] = policy
            self._books.clear()
        return self.show(caller, name)

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove a policy that nobody has."""
        _refuse_built_in(name)
        async with self._changing:
            users = self.show(caller, name).users
            if users:
                raise Invalid(f"{', '.join(users[:8])} still has the policy {name}: revoke it first")
            await self._documents.delete(caller, POLICY_KIND, name)
            del self._policies[caller.project_id, name]
            self._books.clear()

    def granted(self, caller: Caller, user: str) -> tuple[str, ...]:
        """Return the names of the policies a user has."""
        return self.names_of(self._user(caller, user))

    async def grant(self, caller: Caller, user: str, policy: str) -> tuple[str, ...]:
        """Give a user one more policy; return all it has then."""
        self.show(caller, policy)
        async with self._changing:
            names = self._changeable(caller, user)
            return await self._give(caller, user, names if policy in names else (*names, policy))

    async def revoke(self, caller: Caller, user: str, policy: str) -> tuple[str, ...]:
        """Take a policy from a user, at once; return all it has then."""
        async with self._changing:
            names = self._changeable(caller, user)
            if policy not in names:
                raise NotFound(f"{user} does not have the policy {policy!r}; it has {', '.join(names)}")
            return await self._give(caller, user, tuple(name for name in names if name != policy))

    def names_of(self, user: User) -> tuple[str, ...]:
        """Return the names of the policies a user has: its role's until somebody changed that."""
        access_key, names = self._grants.get(user.name, ("", ()))
        # The keys tell a user from one of the same name that was removed: grants are not inherited.
        return names if access_key == user.access_key else (str(user.role),)

    async def _give(self, caller: Caller, user: str, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(names) > POLICIES_OF_USER_MAX:
            raise Invalid(f"a user has at most {POLICIES_OF_USER_MAX} policies")
        access_key = self._user(caller, user).access_key
        grant = {"access_key": access_key, "policies": list(names)}
        await self._documents.put(caller, GRANT_KIND, user, grant)
        self._grants[user] = (access_key, names)
        self._books.clear()
        return names

    def _changeable(self, caller: Caller, user: str) -> tuple[str, ...]:
        if user == caller.user:
            raise Invalid("you cannot change your own policies: ask another admin")
        return self.granted(caller, user)

    def _book(self, caller: Caller) -> Book:
        book = self._books.get((caller.user, caller.role))
        if book is None:
            user = self._users.get(caller.user)
            names: tuple[str, ...] = (str(caller.role),)
            if user is not None and user.role is caller.role:
                names = self.names_of(user)
            book = Book(self._named(caller.project_id, names))
            self._books[caller.user, caller.role] = book
        return book

    def _named(self, project_id: ProjectId, names: Iterable[str]) -> tuple[Policy, ...]:
        found = (self._find(project_id, name) for name in names)
        return tuple(policy for policy in found if policy is not None)

    def _find(self, project_id: ProjectId, name: str) -> Policy | None:
        return BUILT_IN.get(name) or self._policies.get((project_id, name))

    def _user(self, caller: Caller, name: str) -> User:
        user = self._users.get(name)
        if user is None or user.project_id != caller.project_id:
            raise NotFound(f"there is no user called {name!r}")
        return user

    def _holders(self, caller: Caller, name: str) -> tuple[str, ...]:
        users = (user for user in self._users.values() if user.project_id == caller.project_id)
        return tuple(sorted(user.name for user in users if name in self.names_of(user)))


def _refuse_built_in(name: str) -> None:
    if name in BUILT_IN:
        raise Invalid(f"{name} is built in: choose another name")
