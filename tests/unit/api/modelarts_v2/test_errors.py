import pytest

from trackside.api.huawei_errors import CODE_OF
from trackside.api.modelarts_v2.errors import error, unexpected
from trackside.domain.errors import (
    ErrorKind,
    Invalid,
    JobNotFound,
    Malformed,
    TracksideError,
    Unauthenticated,
)


def test_every_kind_has_a_status_and_a_code() -> None:
    assert set(CODE_OF) == set(ErrorKind)


def test_only_what_may_be_tried_again_is_a_server_error() -> None:
    assert {kind for kind, (status, _) in CODE_OF.items() if status >= 500} == {ErrorKind.UNAVAILABLE}


def test_no_refusal_is_a_429_whose_body_the_sdk_would_throw_away() -> None:
    assert 429 not in {status for status, _ in CODE_OF.values()}


@pytest.mark.parametrize(
    ("refused", "status", "code", "message"),
    [
        (Invalid("name is empty"), 400, "ModelArts.2788", "Invalid parameter(name is empty)"),
        (Malformed("Not JSON."), 400, "ModelArts.50004000", "Bad request. Not JSON."),
        (JobNotFound("no job {x}"), 404, "ModelArts.JobNotFound", "no job {x}"),
        (
            Unauthenticated("the signature does not match"),
            401,
            "APIGW.0301",
            "Incorrect IAM authentication information: the signature does not match",
        ),
    ],
)
def test_both_keys_are_always_there(refused: TracksideError, status: int, code: str, message: str) -> None:
    assert error(refused, "r1") == (status, {"error_code": code, "error_msg": message})


def test_a_bug_tells_nothing_but_the_request() -> None:
    status, body = unexpected("r1")
    assert status == 500
    assert set(body) == {"error_code", "error_msg"}
    assert "r1" in body["error_msg"]
