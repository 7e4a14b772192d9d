"""Knows how Trackside's own API says no, and how a node's agent proves itself."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from trackside.api.operation import Signed
from trackside.domain.errors import ErrorKind, TracksideError, Unauthenticated
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId

STATUS_OF: dict[ErrorKind, int] = {
    ErrorKind.INVALID: 400,
    ErrorKind.MALFORMED: 400,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.JOB_NOT_FOUND: 404,
    ErrorKind.TASK_NOT_FOUND: 404,
    ErrorKind.POOL_NOT_FOUND: 404,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.NAME_TAKEN: 409,
    ErrorKind.FLAVOR_NOT_FOUND: 400,
    ErrorKind.ENGINE_NOT_FOUND: 400,
    ErrorKind.OBJECT_NOT_FOUND: 400,
    ErrorKind.CONFLICT: 409,
    ErrorKind.EXHAUSTED: 409,
    ErrorKind.UNAVAILABLE: 503,
}


def error(error: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body of a refusal; the code is the kind's own name."""
    body = {"error_code": f"Trackside.{error.kind}", "error_msg": error.detail, "request_id": request_id}
    return STATUS_OF[error.kind], body


def unexpected(request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body of a bug."""
    said = f"Something went wrong in the server; its log has the details under {request_id}."
    return 500, {"error_code": "Trackside.unexpected", "error_msg": said, "request_id": request_id}


def agent_authenticator(token: str) -> Callable[[Signed], Caller]:
    """Return a check of the one token that this machine's agent holds."""

    def authenticate(signed: Signed) -> Caller:
        given = signed.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode("latin-1"), token.encode()):
            raise Unauthenticated("the agent's token is not the one of this data directory")
        return Caller(user="agent", project_id=ProjectId(""), role=UserRole.AGENT)

    return authenticate
