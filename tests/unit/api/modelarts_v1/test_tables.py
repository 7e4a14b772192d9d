"""The dialect's tables are total, unique and guarded."""

import msgspec
import pytest

from trackside.api.huawei_errors import CODE_OF
from trackside.api.modelarts_v1.errors import error, unexpected
from trackside.api.modelarts_v1.phases import PHASES_CALLED, STATUS_NAMES, STATUS_OF, phases_of
from trackside.api.modelarts_v1.routes import OPERATIONS
from trackside.api.operation import Operation
from trackside.domain.errors import ErrorKind, Invalid, JobNotFound, NameTaken, TracksideError
from trackside.domain.identity import UserRole
from trackside.domain.phase import Phase
from trackside.domain.roles import permits


def test_every_phase_has_a_status_the_vendor_knows() -> None:
    assert set(STATUS_OF) == set(Phase)
    assert set(STATUS_OF.values()) <= set(range(len(STATUS_NAMES)))


def test_statuses_lead_back_to_all_their_phases() -> None:
    assert {phase for phases in PHASES_CALLED.values() for phase in phases} == set(Phase)
    assert all(STATUS_OF[phase] == status for status, phases in PHASES_CALLED.items() for phase in phases)


@pytest.mark.parametrize(
    ("text", "phases"),
    [
        ("8", {Phase.RUNNING, Phase.RESTARTING}),
        ("7|10", {Phase.QUEUED, Phase.STARTING, Phase.SUCCEEDED}),
        ("3|5|6|13", {Phase.CREATE_FAILED}),
        ("13", set()),
        ("", set()),
    ],
)
def test_statuses_are_joined_by_bars(text: str, phases: set[Phase]) -> None:
    assert phases_of(text) == phases


@pytest.mark.parametrize("text", ["running", "-1", "23", "8|x", "99999999999999999999", "٣"])
def test_what_is_no_status_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="from 0 to 22"):
        phases_of(text)


def test_every_kind_of_error_has_a_status_and_a_code() -> None:
    assert set(CODE_OF) == set(ErrorKind)
    assert {kind for kind, (status, _) in CODE_OF.items() if status >= 500} == {ErrorKind.UNAVAILABLE}
    assert 429 not in {status for status, _ in CODE_OF.values()}


@pytest.mark.parametrize(
    ("refused", "status", "code", "message"),
    [
        (Invalid("page is 0"), 400, "ModelArts.2788", "Invalid parameter(page is 0)"),
        (JobNotFound("no job {x}"), 404, "ModelArts.JobNotFound", "no job {x}"),
        (NameTaken("Job name:a is existed"), 409, "ModelArts.0103", "Job name:a is existed"),
    ],
)
def test_a_refusal_has_both_names_of_the_message(
    refused: TracksideError, status: int, code: str, message: str
) -> None:
    body = {"is_success": False, "error_code": code, "error_msg": message, "error_message": message}
    assert error(refused, "r1") == (status, body)


def test_a_bug_tells_nothing_but_the_request() -> None:
    status, body = unexpected("r1")
    assert status == 500
    assert "r1" in body["error_msg"]
    assert body["is_success"] is False


def test_names_and_routes_are_unique() -> None:
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_viewers_read_and_change_nothing(operation: Operation) -> None:
    assert permits(UserRole.VIEWER, operation.action) is (operation.method == "GET")
    assert permits(UserRole.USER, operation.action)


def test_every_body_and_answer_has_a_schema() -> None:
    types = [kind for one in OPERATIONS for kind in (one.body, one.response) if kind]
    schemas, components = msgspec.json.schema_components(types)
    assert len(schemas) == len(types)
    assert "CreateJobBody" in components
