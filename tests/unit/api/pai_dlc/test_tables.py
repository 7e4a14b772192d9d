"""The tables are total: a phase, reason, policy or error that is added cannot be forgotten."""

import re

import msgspec
import pytest

from trackside.api.operation import Operation
from trackside.api.pai_dlc.errors import CODE_OF, UNEXPECTED, error, unexpected
from trackside.api.pai_dlc.measured import METRIC_TYPES
from trackside.api.pai_dlc.phases import CODE_OF_REASON, PLAIN_REASON_OF, STATUS_OF, STATUSES
from trackside.api.pai_dlc.roles import POLICY_OF
from trackside.api.pai_dlc.routes import OPERATIONS
from trackside.api.pai_dlc.translate_spec import PRIORITY_CALLED, PRIORITY_OF, SUCCESS_OF
from trackside.api.pai_dlc.wire_create import RESTART_POLICIES, SUCCESS_POLICIES
from trackside.domain.errors import ErrorKind, Invalid
from trackside.domain.job import RestartPolicy, SuccessPolicy
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode

VENDOR_STATUSES = {
    *("Creating", "Queuing", "Bidding", "EnvPreparing", "SanityChecking", "Running", "Restarting"),
    *("Stopping", "SucceededReserving", "FailedReserving", "Succeeded", "Failed", "Stopped"),
}


def test_every_phase_has_its_status_and_plain_reason() -> None:
    assert set(STATUS_OF) == set(Phase) == set(PLAIN_REASON_OF)
    assert set(STATUSES) == VENDOR_STATUSES


def test_every_reason_has_its_code() -> None:
    assert set(CODE_OF_REASON) == set(ReasonCode)


def test_every_error_has_its_status_and_code() -> None:
    assert set(CODE_OF) == set(ErrorKind)
    assert len({*CODE_OF.values(), UNEXPECTED}) == len(CODE_OF) + 1
    assert all(re.fullmatch(r"[A-Z][A-Za-z.]+", code) for _, code in CODE_OF.values())


def test_an_error_is_an_object_with_four_texts() -> None:
    assert error(Invalid("no"), "r1") == (
        400,
        {"Code": "InvalidParameter", "Message": "no", "RequestId": "r1", "HostId": "pai-dlc.trackside"},
    )
    status, told = unexpected("r2")
    assert (status, told["Code"], told["RequestId"]) == (500, "InternalError", "r2")


def test_policies_and_priorities_are_mapped_both_ways() -> None:
    assert set(POLICY_OF) == set(RESTART_POLICIES)
    assert set(POLICY_OF.values()) == set(RestartPolicy)
    assert set(SUCCESS_OF) == set(SUCCESS_POLICIES)
    assert set(SUCCESS_OF.values()) == set(SuccessPolicy)
    assert sorted(PRIORITY_OF) == list(range(1, 10))
    assert sorted(PRIORITY_OF.values()) == list(PRIORITY_OF.values())
    assert all(PRIORITY_OF[called] == inside for inside, called in PRIORITY_CALLED.items())


def test_there_are_the_eight_metric_types() -> None:
    assert set(METRIC_TYPES) == {
        *("GpuCoreUsage", "GpuMemoryUsage", "CpuCoreUsage", "MemoryUsage"),
        *("NetworkInputRate", "NetworkOutputRate", "DiskReadRate", "DiskWriteRate"),
    }


def test_names_and_routes_are_unique() -> None:
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_the_action_is_the_operations_own(operation: Operation) -> None:
    assert operation.action == f"paidlc:{operation.name}"
    assert operation.response is not None
    assert operation.path.startswith("/api/v1/")


def test_every_body_and_answer_has_a_schema() -> None:
    types = [kind for one in OPERATIONS for kind in (one.body, one.response) if kind]
    schemas, _ = msgspec.json.schema_components(types)
    assert len(schemas) == len(types)
