"""Knows how the pool operations say no: their documents name another code for a bad request."""

from collections.abc import Mapping
from typing import Any

from trackside.api.modelarts_v2 import errors
from trackside.domain.errors import ErrorKind, Malformed, TracksideError

BAD_REQUESTS = (ErrorKind.INVALID, ErrorKind.FLAVOR_NOT_FOUND)


def error(refused: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body that tell a caller no."""
    if refused.kind in BAD_REQUESTS:
        refused = Malformed(refused.detail)
    return errors.error(refused, request_id)
