import inspect
import re

import msgspec
import pytest
from huaweicloudsdkmodelarts.v1 import ModelArtsClient

from trackside.api.modelarts_v2.routes import OPERATIONS
from trackside.api.operation import Operation
from trackside.domain.identity import UserRole
from trackside.domain.roles import permits

NOT_IN_THE_SDK = {"ShowObsUrlOfTrainingJobLogs"}
READS = {"GET"}


def sdk_route(name: str) -> tuple[str, str]:
    """Return method and path that the SDK uses for an operation."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    source = inspect.getsource(getattr(ModelArtsClient, f"_{snake}_http_info"))
    found = re.search(r'"method": "(\w+)",\s*"resource_path": "([^"]+)"', source)
    assert found, name
    return found.group(1), found.group(2)


def test_names_and_routes_are_unique() -> None:
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.name not in NOT_IN_THE_SDK], ids=lambda one: one.name
)
def test_the_sdk_calls_it_there(operation: Operation) -> None:
    assert (operation.method, operation.path) == sdk_route(operation.name)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_viewers_read_and_change_nothing(operation: Operation) -> None:
    reads = operation.method in READS or operation.name == "ListTrainingJobs"
    assert permits(UserRole.VIEWER, operation.action) is reads
    divides = operation.action.split(":")[1] in ("pool", "quota")  # whoever works does not divide
    assert permits(UserRole.USER, operation.action) is (reads or not divides)
    assert permits(UserRole.ADMIN, operation.action)


def test_every_body_and_answer_has_a_schema() -> None:
    types = [kind for one in OPERATIONS for kind in (one.body, one.response) if kind]
    schemas, components = msgspec.json.schema_components(types)
    assert len(schemas) == len(types)
    assert "CreateJobBody" in components
