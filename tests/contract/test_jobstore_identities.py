"""What every IdentityStore does."""

from dataclasses import replace

import pytest

from tests.unit.persistence.making import OTHER_PROJECT, PROJECT, making
from trackside.domain.errors import Invalid, NotFound
from trackside.domain.identity import User, UserRole
from trackside.domain.job import ProjectId
from trackside.persistence import Stores, open_stores

pytestmark = pytest.mark.anyio
ANN = User(
    name="ann",
    project_id=PROJECT,
    role=UserRole.ADMIN,
    access_key="AK1",
    secret_key="a secret",
    token_digest="d1",
)
BOB = replace(ANN, name="bob", role=UserRole.VIEWER, access_key="AK2", token_digest="d2")


async def test_projects_are_kept_and_renamed_without_losing_their_numbers(stores: Stores) -> None:
    await stores.identities.put_project(OTHER_PROJECT, "second")
    await stores.jobs.insert(PROJECT, making())
    await stores.identities.put_project(PROJECT, "renamed")
    assert await stores.identities.projects() == ((PROJECT, "renamed"), (OTHER_PROJECT, "second"))
    assert (await stores.jobs.insert(PROJECT, making())).number == 2


async def test_users_are_kept_replaced_and_removed(stores: Stores, database_url: str) -> None:
    await stores.identities.put_user(BOB)
    await stores.identities.put_user(ANN)
    assert await stores.identities.users() == (ANN, BOB)
    changed = replace(BOB, role=UserRole.USER, secret_key="another")
    await stores.identities.put_user(changed)
    reopened = open_stores(database_url)
    assert await reopened.identities.users() == (ANN, changed)
    reopened.close()
    await stores.identities.delete_user("ann")
    assert await stores.identities.users() == (changed,)
    with pytest.raises(NotFound):
        await stores.identities.delete_user("ann")


async def test_every_role_is_kept(stores: Stores) -> None:
    for role in UserRole:
        await stores.identities.put_user(replace(ANN, name=role, role=role, access_key=role))
    assert {user.role for user in await stores.identities.users()} == set(UserRole)


async def test_an_access_key_has_one_owner_and_the_error_tells_no_secret(stores: Stores) -> None:
    await stores.identities.put_user(ANN)
    with pytest.raises(Invalid) as caught:
        await stores.identities.put_user(replace(BOB, access_key=ANN.access_key, secret_key="hush-hush"))
    assert "hush" not in str(caught.value)
    assert await stores.identities.users() == (ANN,)


async def test_a_user_needs_a_project_that_exists(stores: Stores) -> None:
    with pytest.raises(NotFound):
        await stores.identities.put_user(replace(ANN, project_id=OTHER_PROJECT))


async def test_bad_text_is_invalid(stores: Stores) -> None:
    for call in (
        stores.identities.put_project(ProjectId("a\x00"), "x"),
        stores.identities.put_project(OTHER_PROJECT, "a\x00"),
        stores.identities.put_project(ProjectId(""), "x"),
        stores.identities.put_user(replace(ANN, secret_key="\ud800")),
        stores.identities.delete_user("a\x00"),
    ):
        with pytest.raises(Invalid):
            await call
    assert await stores.identities.projects() == ((PROJECT, "first"),)
