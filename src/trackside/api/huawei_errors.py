"""Knows the HTTP status and the code of every way Trackside says no, as both ModelArts dialects give them.

Codes with a number are the vendor's own, as documents or public notes quote them; where none is known the
code is a word, so that it cannot be taken for another of the vendor's. How a body looks, a dialect knows.
"""

from trackside.domain.errors import ErrorKind, TracksideError

CODE_OF: dict[ErrorKind, tuple[int, str]] = {
    ErrorKind.INVALID: (400, "ModelArts.2788"),
    ErrorKind.MALFORMED: (400, "ModelArts.50004000"),
    ErrorKind.TOO_LARGE: (413, "APIGW.0201"),
    ErrorKind.UNAUTHENTICATED: (401, "APIGW.0301"),
    ErrorKind.FORBIDDEN: (403, "APIGW.0302"),
    ErrorKind.JOB_NOT_FOUND: (404, "ModelArts.JobNotFound"),
    ErrorKind.TASK_NOT_FOUND: (404, "ModelArts.TaskNotFound"),
    ErrorKind.POOL_NOT_FOUND: (404, "ModelArts.50015001"),
    ErrorKind.NOT_FOUND: (404, "APIGW.0101"),
    ErrorKind.NAME_TAKEN: (409, "ModelArts.0103"),
    ErrorKind.FLAVOR_NOT_FOUND: (400, "ModelArts.2781"),
    ErrorKind.ENGINE_NOT_FOUND: (400, "ModelArts.EngineNotFound"),
    ErrorKind.OBJECT_NOT_FOUND: (400, "ModelArts.ObjectNotFound"),
    ErrorKind.CONFLICT: (409, "ModelArts.JobStateConflict"),
    ErrorKind.EXHAUSTED: (403, "ModelArts.0116"),  # not 429: the SDK throws a 429's body away
    ErrorKind.UNAVAILABLE: (503, "ModelArts.Unavailable"),
}
UNEXPECTED = (500, "ModelArts.InternalError")

_WORDING = {
    ErrorKind.INVALID: "Invalid parameter({})",
    ErrorKind.MALFORMED: "Bad request. {}",
    ErrorKind.UNAUTHENTICATED: "Incorrect IAM authentication information: {}",
}


def refusal(refused: TracksideError) -> tuple[int, str, str]:
    """Return status, code and message of a refusal."""
    status, code = CODE_OF[refused.kind]
    return status, code, _WORDING.get(refused.kind, "{}").format(refused.detail)


def bug(request_id: str) -> tuple[int, str, str]:
    """Return status, code and message of a bug, which tell nothing but where to look."""
    status, code = UNEXPECTED
    return status, code, f"Internal error; the server's log has it under request {request_id}."
