"""Knows the HTTP status and the code of every way Trackside says no in PAI-DLC.

The vendor documents hardly any codes of this API; those here are its usual words for such cases. The SDK
takes the request id from the body only, so every body has it. docs/pai-dlc.md lists the codes.
"""

from collections.abc import Mapping
from typing import Any

from trackside.domain.errors import ErrorKind, TracksideError

HOST_ID = "pai-dlc.trackside"

CODE_OF: dict[ErrorKind, tuple[int, str]] = {
    ErrorKind.INVALID: (400, "InvalidParameter"),
    ErrorKind.MALFORMED: (400, "InvalidRequestBody"),
    ErrorKind.TOO_LARGE: (413, "RequestEntityTooLarge"),
    ErrorKind.UNAUTHENTICATED: (401, "InvalidCredentials"),
    ErrorKind.FORBIDDEN: (403, "Forbidden.NoPermission"),
    ErrorKind.JOB_NOT_FOUND: (404, "JobNotFound"),
    ErrorKind.TASK_NOT_FOUND: (404, "PodNotFound"),
    ErrorKind.POOL_NOT_FOUND: (404, "ResourceQuotaNotFound"),
    ErrorKind.NOT_FOUND: (404, "ResourceNotFound"),
    ErrorKind.NAME_TAKEN: (409, "NameAlreadyExists"),
    ErrorKind.FLAVOR_NOT_FOUND: (400, "EcsSpecNotFound"),
    ErrorKind.ENGINE_NOT_FOUND: (400, "ImageNotFound"),
    ErrorKind.OBJECT_NOT_FOUND: (400, "DataSourceNotFound"),
    ErrorKind.CONFLICT: (409, "InvalidJobStatus"),
    ErrorKind.EXHAUSTED: (403, "QuotaExceeded"),
    ErrorKind.UNAVAILABLE: (503, "ServiceUnavailable"),
}
UNEXPECTED = (500, "InternalError")


def error(refused: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body that tell a caller no."""
    status, code = CODE_OF[refused.kind]
    return status, _body(code, refused.detail, request_id)


def unexpected(request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body of a bug, which tell nothing but where to look."""
    status, code = UNEXPECTED
    return status, _body(
        code, f"Internal error; the server's log has it under request {request_id}.", request_id
    )


def _body(code: str, message: str, request_id: str) -> dict[str, str]:
    return {"Code": code, "Message": message, "RequestId": request_id, "HostId": HOST_ID}
