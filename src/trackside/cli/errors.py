"""Knows how the command line says no: one error, one hint, one exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script may rely on; docs/cli.md lists them."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3  # or ambiguous
    NOT_ALLOWED = 4  # or not signed in
    UNREACHABLE = 5
    REFUSED = 6  # a bad spec, a quota, a phase that does not allow it
    JOB_FAILED = 20
    JOB_STOPPED = 21
    TIMED_OUT = 22  # the wait ended, the job goes on
    INTERRUPTED = 130


class CliError(Exception):
    """Something the user should read, without a traceback."""

    def __init__(self, message: str, *, code: ExitCode, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint


class Usage(CliError):
    """The command was not written as it must be."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, code=ExitCode.USAGE, hint=hint)


class Refused(CliError):
    """The server, or the check before it, does not accept this."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, code=ExitCode.REFUSED, hint=hint)


class Unreachable(CliError):
    """Nothing answers at the server's address."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, code=ExitCode.UNREACHABLE, hint=hint)
