"""Knows every way Trackside says no on purpose; knows no HTTP status and no vendor's code."""

from enum import StrEnum
from typing import ClassVar


class ErrorKind(StrEnum):
    """What went wrong, in words every dialect can translate; the values are stable."""

    INVALID = "invalid"  # the request itself is wrong
    MALFORMED = "malformed"  # the body could not be read at all
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    JOB_NOT_FOUND = "job_not_found"
    TASK_NOT_FOUND = "task_not_found"
    POOL_NOT_FOUND = "pool_not_found"
    NOT_FOUND = "not_found"
    NAME_TAKEN = "name_taken"
    FLAVOR_NOT_FOUND = "flavor_not_found"
    ENGINE_NOT_FOUND = "engine_not_found"
    OBJECT_NOT_FOUND = "object_not_found"
    CONFLICT = "conflict"  # the job's phase, or what is in a pool, does not allow it
    EXHAUSTED = "exhausted"  # a quota or limit is used up
    UNAVAILABLE = "unavailable"  # try again later


class TracksideError(Exception):
    """Something Trackside refuses on purpose."""

    kind: ClassVar[ErrorKind] = ErrorKind.INVALID

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or self.__doc__)

    @property
    def detail(self) -> str:
        """Return the sentence meant for the caller."""
        return str(self.args[0])


class Invalid(TracksideError):
    """The request is not valid."""

    kind = ErrorKind.INVALID


class Malformed(TracksideError):
    """The body could not be read."""

    kind = ErrorKind.MALFORMED


class TooLarge(TracksideError):
    """The request is larger than the limit."""

    kind = ErrorKind.TOO_LARGE


class Unauthenticated(TracksideError):
    """The request does not prove who sent it."""

    kind = ErrorKind.UNAUTHENTICATED


class Forbidden(TracksideError):
    """The caller may not do this."""

    kind = ErrorKind.FORBIDDEN


class NotFound(TracksideError):
    """There is no such thing."""

    kind = ErrorKind.NOT_FOUND


class JobNotFound(NotFound):
    """There is no such job in this project."""

    kind = ErrorKind.JOB_NOT_FOUND


class TaskNotFound(NotFound):
    """The job has no such task."""

    kind = ErrorKind.TASK_NOT_FOUND


class PoolNotFound(NotFound):
    """There is no such pool."""

    kind = ErrorKind.POOL_NOT_FOUND


class FlavorNotFound(NotFound):
    """There is no such flavor."""

    kind = ErrorKind.FLAVOR_NOT_FOUND


class EngineNotFound(NotFound):
    """There is no such engine."""

    kind = ErrorKind.ENGINE_NOT_FOUND


class ObjectNotFound(NotFound):
    """There is no such object in the object store."""

    kind = ErrorKind.OBJECT_NOT_FOUND


class NameTaken(TracksideError):
    """A job of this name exists already."""

    kind = ErrorKind.NAME_TAKEN


class IllegalTransition(TracksideError):
    """The job is in a phase that does not allow this move."""

    kind = ErrorKind.CONFLICT


class PoolInUse(TracksideError):
    """The pool has jobs that are not over."""

    kind = ErrorKind.CONFLICT


class SwitchedOff(TracksideError):
    """The server was not told to offer this."""

    kind = ErrorKind.CONFLICT


class Exhausted(TracksideError):
    """A limit is used up."""

    kind = ErrorKind.EXHAUSTED


class Unavailable(TracksideError):
    """The service cannot do this right now."""

    kind = ErrorKind.UNAVAILABLE
