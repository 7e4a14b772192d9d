"""The official SDK searches jobs by every filter, in every order, page by page."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkcore.utils.http_utils import sanitize_for_serialization
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, wait_until

pytestmark = pytest.mark.e2e

Jobs = dict[str, str]


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Any:
    return client_of(server)


@pytest.fixture(scope="module")
def workspace() -> str:
    """A workspace of this test's own: other tests' jobs are in another."""
    return uuid.uuid4().hex


@pytest.fixture(scope="module")
def jobs(client: Any, workspace: str) -> Iterator[Jobs]:
    """Four jobs, created in this order: two that end well, one that fails, one that runs on."""
    commands = {"alpha": "true", "beta": "exit 4", "gamma-alpha": "true", "delta": "sleep 300"}
    made = {}
    for name, command in commands.items():
        made[name] = _create(client, workspace, name, command)
        wait_until(client, made[name], "Completed", "Failed", "Running")
    for name in ("alpha", "beta", "gamma-alpha"):
        wait_until(client, made[name])
    yield made
    for job_id in made.values():
        client.delete_training_job(sdk.DeleteTrainingJobRequest(training_job_id=job_id))


def _create(client: Any, workspace: str, name: str, command: str) -> str:
    size = sdk.MainContainerCustomizedFlavor(cpu_core_num=0.1, mem_size=0.1)
    body = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=name, workspace_id=workspace, description=f"runs {command}"),
        algorithm=sdk.JobAlgorithm(command=command),
        spec=sdk.Spec(resource=sdk.SpecResource(main_container_customized_flavor=size)),
    )
    return str(client.create_training_job(sdk.CreateTrainingJobRequest(body=body)).metadata.id)


@pytest.fixture
def search(client: Any, workspace: str, jobs: Jobs) -> Any:
    """Search with the SDK and return the answer."""

    def call(**given: Any) -> Any:
        body = sdk.JobSearches(**({"workspace_id": workspace} | given))
        return client.list_training_jobs(sdk.ListTrainingJobsRequest(body=body))

    return call


@pytest.fixture
def names(search: Any) -> Any:
    """Search with one filter and return the names found, newest first."""

    def call(key: str, operator: str, *value: str) -> list[str]:
        found = search(filters=[sdk.Filter(key=key, operator=operator, value=list(value))])
        assert found.count == len(found.items)
        return [item.metadata.name for item in found.items]

    return call


def test_a_search_without_filters(search: Any, client: Any, jobs: Jobs, workspace: str) -> None:
    found = search()
    assert [item.metadata.name for item in found.items] == ["delta", "gamma-alpha", "beta", "alpha"]
    assert (found.count, found.limit, found.offset) == (4, 50, 0)
    assert found.total >= 4
    assert (found.sort_by, found.order, found.workspace_id) == ("create_time", "desc", workspace)
    for item in found.items[1:]:  # the first one runs, its duration grows
        assert sanitize_for_serialization(item) == sanitize_for_serialization(
            details(client, item.metadata.id)
        )


def test_the_default_workspace_is_another(client: Any, jobs: Jobs) -> None:
    found = client.list_training_jobs(sdk.ListTrainingJobsRequest(body=sdk.JobSearches(limit=50)))
    assert found.workspace_id == "0"
    assert not set(jobs.values()) & {item.metadata.id for item in found.items}


def test_paging(search: Any) -> None:
    pages = [search(offset=offset, limit=3) for offset in (0, 3, 6)]
    assert [len(page.items) for page in pages] == [3, 1, 0]
    assert {page.count for page in pages} == {4}
    whole = [item.metadata.name for page in pages for item in page.items]
    assert whole == ["delta", "gamma-alpha", "beta", "alpha"]
    second = search(offset=1, limit=1).items[0].metadata.name
    assert second == "gamma-alpha", "the offset counts jobs, not pages"


@pytest.mark.parametrize("sort_by", ["create_time", "name", "phase", "status", "user_name", "start_time"])
def test_orders(search: Any, sort_by: str) -> None:
    up = [item.metadata.id for item in search(sort_by=sort_by, order="asc").items]
    down = [item.metadata.id for item in search(sort_by=sort_by, order="desc").items]
    assert sorted(up) == sorted(down)
    if sort_by in ("create_time", "name"):
        assert up == list(reversed(down))


def test_names_in_order(search: Any) -> None:
    found = search(sort_by="name", order="asc", group_by="name")
    assert [item.metadata.name for item in found.items] == ["alpha", "beta", "delta", "gamma-alpha"]
    assert found.group_by == "name"


def test_by_name(names: Any) -> None:
    assert names("name", "like", "ALPHA") == ["gamma-alpha", "alpha"]
    assert names("name", "like", "bet", "del") == ["delta", "beta"]
    assert names("name", "like", "%") == []
    assert names("name", "in", "alpha", "delta") == ["delta", "alpha"]
    assert names("name", "not", "alpha") == ["delta", "gamma-alpha", "beta"]


def test_by_id(names: Any, jobs: Jobs) -> None:
    assert names("id", "in", jobs["beta"], str(uuid.uuid4())) == ["beta"]


@pytest.mark.parametrize("key", ["phase", "status"])
def test_by_phase(names: Any, key: str) -> None:
    assert names(key, "in", "Completed") == ["gamma-alpha", "alpha"]
    assert names(key, "in", "Failed", "Running") == ["delta", "beta"]
    assert names(key, "not", "Completed") == ["delta", "beta"]
    assert names(key, "in", "Abnormal") == []


def test_by_owner(names: Any, client: Any, jobs: Jobs) -> None:
    owner = details(client, jobs["alpha"]).metadata.user_name
    assert len(names("user_name", "in", owner)) == 4
    assert names("user_name", "in", "nobody") == []
    assert names("user_name", "not", owner) == []


def test_by_time(names: Any, client: Any, jobs: Jobs) -> None:
    beta, gamma = (details(client, jobs[name]).metadata.create_time for name in ("beta", "gamma-alpha"))
    assert names("create_time", "between", str(beta), str(gamma)) == ["gamma-alpha", "beta"]
    assert names("create_time", "between", "0", "1") == []
    assert names("create_time", "between", "1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z") == []
    assert set(names("end_time", "between", "0", "9999999999999")) == {"alpha", "beta", "gamma-alpha"}


def test_by_other_keys(names: Any) -> None:
    assert names("description", "like", "exit 4") == ["beta"]
    assert len(names("kind", "in", "job")) == 4
    assert names("job_type", "in", "hetero_job") == []
    assert len(names("pool_id", "in", "default")) == 4
    assert names("pool_id", "in", "another") == []


def test_filters_narrow_together(search: Any) -> None:
    found = search(
        filters=[
            sdk.Filter(key="name", operator="like", value=["alpha"]),
            sdk.Filter(key="phase", operator="in", value=["Completed", "Failed"]),
            sdk.Filter(key="name", operator="not", value=["alpha"]),
        ],
        limit=1,
    )
    assert [item.metadata.name for item in found.items] == ["gamma-alpha"]
    assert found.count == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"filters": [{"key": "colour", "operator": "in", "value": ["x"]}]}, "[id name phase"),
        ({"filters": [{"key": "name", "operator": "is", "value": ["x"]}]}, "[between like in not]"),
        ({"filters": [{"key": "phase", "operator": "in", "value": ["Asleep"]}]}, "[Creating Pending"),
        ({"sort_by": "colour"}, "[create_time"),
        ({"order": "sideways"}, "[asc desc]"),
        ({"limit": 51}, "limit"),
        ({"offset": -1}, "offset"),
    ],
)
def test_words_that_are_not_known(search: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ClientRequestException) as caught:
        search(**given)
    error = caught.value
    assert (error.status_code, error.error_code) == (400, "ModelArts.2788")
    assert said in error.error_msg
