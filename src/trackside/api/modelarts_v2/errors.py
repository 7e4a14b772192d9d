"""Knows how ModelArts v2 says no: a code and a message, both always.

The codes are those of both ModelArts dialects; docs/modelarts-v2.md lists them all.
"""

from collections.abc import Mapping
from typing import Any

from trackside.api.huawei_errors import bug, refusal
from trackside.domain.errors import TracksideError


def error(refused: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body that tell a caller no; the request id travels in the header."""
    del request_id
    return _answer(*refusal(refused))


def unexpected(request_id: str) -> tuple[int, Mapping[str, Any]]:
    """Return the status and body of a bug."""
    return _answer(*bug(request_id))


def _answer(status: int, code: str, message: str) -> tuple[int, Mapping[str, Any]]:
    return status, {"error_code": code, "error_msg": message}
