"""Policies kept in a real database and answered from memory; every operation of every dialect is guarded."""

import asyncio
import re
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.unit.domain.builders import a_job, a_spec
from trackside import bootstrap
from trackside.config import Settings
from trackside.domain.errors import Forbidden, Invalid, JobNotFound, NotFound, Unauthenticated
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import Job, JobId, ProjectId
from trackside.domain.roles import permits
from trackside.ports import Update
from trackside.service.policies import Policies
from trackside.wiring import Parts, build

T = TypeVar("T")
PROJECT, ELSEWHERE = ProjectId("p"), ProjectId("q")
ADMIN = Caller(user="root", project_id=PROJECT, role=UserRole.ADMIN)
ANA = Caller(user="ana", project_id=PROJECT, role=UserRole.USER)
GET, LIST = "modelarts:trainJob:get", "modelarts:trainJob:list"
TEAM_A = {
    "Statement": {
        "Effect": "Allow",
        "Action": ["modelarts:*", "paidlc:*", "trackside:job:*"],
        "Condition": {"StringEquals": {"g:ResourceTag/team": "a"}},
    }
}
DOCS = Path(__file__).parents[3] / "docs" / "access.md"


class World:
    """A server's parts on a database of their own, with three users and two jobs."""

    def __init__(self, data_dir: Path) -> None:
        self._runner = asyncio.Runner()
        self.parts: Parts = build(Settings(data_dir=str(data_dir), run_agent=False))
        self.run(self.parts.places.stores.start())
        for project in (PROJECT, ELSEWHERE):
            self.run(self.parts.places.stores.identities.put_project(project, project))
        self.users = [
            bootstrap.make_user("root", PROJECT, UserRole.ADMIN).user,
            bootstrap.make_user("ana", PROJECT, UserRole.USER).user,
            bootstrap.make_user("eve", ELSEWHERE, UserRole.ADMIN).user,
        ]
        self.job_a = self.add("a", short_id="aaaaaaaaaaaaaaaa", tags={"team": "a"})
        self.job_b = self.add("b", short_id="bbbbbbbbbbbbbbbb", tags={"team": "b"}, owner="ana")
        self.policies = self.parts.access.policies
        self.policies.users_changed(self.users)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def add(self, name: str, *, short_id: str, tags: dict[str, str], owner: str = "root") -> Job:
        def make(number: int) -> Update:
            job = a_job(
                id=JobId(f"{number:08d}-0000-4000-8000-000000000000"),
                short_id=short_id,
                number=number,
                family=number,
                owner=owner,
                spec=a_spec(name=name, tags=tags),
            )
            return Update(job=job)

        return self.run(self.parts.places.stores.jobs.insert(PROJECT, make))

    def reloaded(self) -> Policies:
        """Return what a server that starts anew on this database knows."""
        fresh = Policies(documents=self.parts.services.documents, store=self.parts.places.stores.jobs)
        self.run(fresh.load([PROJECT, ELSEWHERE]))
        fresh.users_changed(self.users)
        return fresh

    def close(self) -> None:
        self.parts.places.stores.close()
        self.parts.places.metrics.close()
        self._runner.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data")
    yield made
    made.close()


def may(policies: Policies, action: str, caller: Caller = ANA, **path: str) -> bool:
    try:
        policies.check(caller, action, path)
    except Forbidden:
        return False
    return True


def limit(world: World) -> None:
    """Leave ana with the jobs of team a alone."""
    world.run(world.policies.put(ADMIN, "team-a", TEAM_A))
    world.run(world.policies.grant(ADMIN, "ana", "team-a"))
    world.run(world.policies.revoke(ADMIN, "ana", "user"))


def test_a_user_starts_with_its_roles_policy(world: World) -> None:
    assert world.policies.granted(ADMIN, "ana") == ("user",)
    assert may(world.policies, GET, training_job_id=world.job_b.id)
    assert not may(world.policies, "trackside:policy:update")


def test_conditions_look_at_the_job_the_path_names_in_every_dialect(world: World) -> None:
    limit(world)
    a, b = world.job_a, world.job_b
    for action, path_a, path_b in (
        (GET, {"training_job_id": a.id}, {"training_job_id": b.id}),
        ("trackside:job:get", {"job_id": a.id}, {"job_id": b.id}),
        ("paidlc:GetJob", {"JobId": f"dlc{a.short_id}"}, {"JobId": f"dlc{b.short_id}"}),
        ("paidlc:GetJob", {"JobId": f"DLC{a.short_id}"}, {"JobId": f"DLC{b.short_id}"}),
        (
            "modelarts:trainJobVersion:get",
            {"job_id": str(a.family), "version_id": str(a.number)},
            {"job_id": str(b.family), "version_id": str(b.number)},
        ),
    ):
        assert may(world.policies, action, **path_a), action
        assert not may(world.policies, action, **path_b), action


@pytest.mark.parametrize(
    "path",
    [
        {},
        {"training_job_id": "00000009-0000-4000-8000-000000000000"},
        {"JobId": "dlc0000000000000000"},
        {"job_id": "1"},  # all versions of a v1 job
        {"job_id": "1", "version_id": "2"},  # a version of another job
        {"job_id": "1", "version_id": "0"},
        {"job_id": "1", "version_id": "²"},
        {"pool_name": "default"},
    ],
)
def test_where_no_single_job_is_known_a_limited_policy_allows_nothing(
    world: World, path: dict[str, str]
) -> None:
    limit(world)
    assert not may(world.policies, GET, **path)


def test_deny_wins_and_the_refusal_names_it(world: World) -> None:
    denied = {"Statement": {"Effect": "Deny", "Action": "*:delete", "Sid": "keep", "Resource": "trainJob:b"}}
    world.run(world.policies.put(ADMIN, "keep-b", denied))
    world.run(world.policies.grant(ADMIN, "ana", "keep-b"))
    delete = "modelarts:trainJob:delete"
    assert may(world.policies, delete, training_job_id=world.job_a.id)
    with pytest.raises(Forbidden, match=r"statement 1 \(keep\) of the policy keep-b denies it"):
        world.policies.check(ANA, delete, {"training_job_id": world.job_b.id})


def test_own_jobs_and_pools(world: World) -> None:
    own = {"Effect": "Allow", "Action": GET, "Condition": {"Bool": {"trackside:own": True}}}
    pool = {"Effect": "Allow", "Action": "modelarts:pool:get", "Resource": "pool:default"}
    world.run(world.policies.put(ADMIN, "own", {"Statement": [own, pool]}))
    world.run(world.policies.grant(ADMIN, "ana", "own"))
    world.run(world.policies.revoke(ADMIN, "ana", "user"))
    assert may(world.policies, GET, training_job_id=world.job_b.id)
    assert not may(world.policies, GET, training_job_id=world.job_a.id)
    assert may(world.policies, "modelarts:pool:get", pool_id="default", node_ip="1.2.3.4")
    assert not may(world.policies, "modelarts:pool:get", pool_id="other", node_ip="1.2.3.4")


def test_changes_count_at_once_and_survive_a_restart(world: World) -> None:
    limit(world)
    for policies in (world.policies, world.reloaded()):
        assert policies.granted(ADMIN, "ana") == ("team-a",)
        assert may(policies, GET, training_job_id=world.job_a.id)
    other = {"Statement": {"Effect": "Allow", "Action": LIST}}
    world.run(world.policies.put(ADMIN, "team-a", other))
    assert may(world.policies, LIST)
    assert not may(world.policies, GET, training_job_id=world.job_a.id)
    world.run(world.policies.revoke(ADMIN, "ana", "team-a"))
    for policies in (world.policies, world.reloaded()):
        assert not may(policies, LIST)
        assert policies.granted(ADMIN, "ana") == ()


def test_a_new_user_of_an_old_name_inherits_nothing(world: World) -> None:
    world.run(world.policies.grant(ADMIN, "ana", "admin"))
    assert may(world.policies, "trackside:user:create")
    again = bootstrap.make_user("ana", PROJECT, UserRole.USER).user
    world.policies.users_changed([replace(world.users[0]), again])
    assert world.policies.granted(ADMIN, "ana") == ("user",)
    assert not may(world.policies, "trackside:user:create")


def test_agents_and_links_have_their_own_policy_whatever_users_are_called(world: World) -> None:
    named = bootstrap.make_user("agent", PROJECT, UserRole.USER).user
    world.policies.users_changed([*world.users, named])
    agent = Caller(user="agent", project_id=ProjectId(""), role=UserRole.AGENT)
    assert may(world.policies, "trackside:agent:report", agent)
    assert not may(world.policies, GET, agent)
    assert not may(world.policies, "trackside:agent:report", replace(agent, role=UserRole.USER))


def test_who_may_be_changed_by_whom(world: World) -> None:
    policies = world.policies
    for change in (policies.grant, policies.revoke):
        with pytest.raises(Invalid, match="your own policies"):
            world.run(change(ADMIN, "root", "admin"))
        with pytest.raises(NotFound):
            world.run(change(ADMIN, "eve", "user"))
    for name in ("agent", "nothing"):
        with pytest.raises(NotFound):
            world.run(policies.grant(ADMIN, "ana", name))
    with pytest.raises(NotFound):
        world.run(policies.revoke(ADMIN, "ana", "admin"))
    with pytest.raises(Invalid, match="built in"):
        world.run(policies.put(ADMIN, "admin", TEAM_A))
    with pytest.raises(Invalid, match="built in"):
        world.run(policies.remove(ADMIN, "viewer"))
    limit(world)
    with pytest.raises(Invalid, match="ana still has the policy team-a"):
        world.run(policies.remove(ADMIN, "team-a"))
    world.run(policies.revoke(ADMIN, "ana", "team-a"))
    world.run(policies.remove(ADMIN, "team-a"))
    with pytest.raises(NotFound):
        policies.show(ADMIN, "team-a")
    assert [one.policy.name for one in policies.list(ADMIN)] == ["admin", "user", "viewer"]


def test_policies_of_other_projects_are_not_there(world: World) -> None:
    world.run(world.policies.put(ADMIN, "team-a", TEAM_A))
    eve = Caller(user="eve", project_id=ELSEWHERE, role=UserRole.ADMIN)
    with pytest.raises(NotFound):
        world.policies.show(eve, "team-a")
    with pytest.raises(NotFound):
        world.policies.granted(eve, "ana")


def test_trying_says_which_statement_decides(world: World) -> None:
    limit(world)
    policies = world.policies
    assert (
        policies.would(ADMIN, "ana", GET, world.job_a.id).text == "statement 1 of the policy team-a allows it"
    )
    assert policies.would(ADMIN, "ana", GET, f"dlc{world.job_b.short_id}").text == "no statement allows it"
    assert not policies.would(ADMIN, "ana", LIST, None).allowed
    assert policies.would(ADMIN, "root", LIST, None).policy == "admin"
    with pytest.raises(JobNotFound):
        policies.would(ADMIN, "ana", GET, "no such job")


def test_granting_twice_is_granting_once_and_there_is_a_limit(world: World) -> None:
    policies = world.policies
    assert world.run(policies.grant(ADMIN, "ana", "viewer")) == ("user", "viewer")
    assert world.run(policies.grant(ADMIN, "ana", "viewer")) == ("user", "viewer")
    for number in range(18):
        world.run(policies.put(ADMIN, f"p{number}", TEAM_A))
        world.run(policies.grant(ADMIN, "ana", f"p{number}"))
    with pytest.raises(Invalid, match="at most 20"):
        world.run(policies.grant(ADMIN, "ana", "admin"))


def test_temporary_keys_end_with_their_user(world: World) -> None:
    temporary = world.parts.access.temporary
    keys = temporary.issue(ANA, 60)
    opened = temporary.open(keys.security_token)
    assert (opened.caller, opened.secret_of(keys.access_key)) == (ANA, keys.secret_key)
    assert opened.secret_of("another") is None
    assert keys.secret_key not in repr(keys) + repr(opened)
    for token in ("", "x", "é", keys.security_token[:-2], "A" + keys.security_token[1:]):
        with pytest.raises(Unauthenticated, match="not one of this server"):
            temporary.open(token)
    users: list[User] = [user for user in world.users if user.name != "ana"]
    world.policies.users_changed(users)
    with pytest.raises(Unauthenticated, match="gone"):
        temporary.open(keys.security_token)
    for seconds in (0, 129_601):
        with pytest.raises(Invalid):
            temporary.issue(ANA, seconds)


def documented() -> dict[str, dict[UserRole, bool]]:
    rows = re.findall(
        r"^\| `([^`]+)` \| [^|]+ \| (yes|\S) \| (yes|\S) \| (yes|\S) \|$", DOCS.read_text(), re.MULTILINE
    )
    roles = (UserRole.ADMIN, UserRole.USER, UserRole.VIEWER)
    return {action: dict(zip(roles, [one == "yes" for one in told], strict=True)) for action, *told in rows}


def test_every_operation_has_an_action_that_the_docs_list_and_nothing_else(world: World) -> None:
    operations = [one for dialect in world.parts.dialects for one in dialect.operations]
    for operation in operations:
        assert re.fullmatch(r"[a-z]+(:[A-Za-z]+)+", operation.action), operation.name
    assert {one.action for one in operations} == set(documented())


def test_each_role_can_do_exactly_its_table(world: World) -> None:
    users = {role: bootstrap.make_user(f"a-{role}", PROJECT, role).user for role in UserRole}
    world.policies.users_changed(users.values())
    for action, told in documented().items():
        for role, expected in told.items():
            caller = Caller(user=f"a-{role}", project_id=PROJECT, role=role)
            assert may(world.policies, action, caller) is expected, (role, action)
            assert permits(role, action) is expected
        assert permits(UserRole.AGENT, action) is action.startswith("trackside:agent:")
        assert told[UserRole.USER] or not told[UserRole.VIEWER]
