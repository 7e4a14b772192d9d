"""Knows which job a user means: a name, an id, the beginning of an id, or @last."""

import difflib
import re
from collections.abc import Sequence

from trackside.cli.api import Api
from trackside.cli.errors import CliError, ExitCode
from trackside.cli.views import JobView
from trackside.cli.words import state

LAST = "@last"
RECENT_MAX = 2000  # how far back the beginning of an id is looked for
LISTED_MAX = 10

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ID_START = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")


def find_job(api: Api, wanted: str) -> JobView:
    """Return the one job that is meant; raise with a list or a suggestion if it is not exactly one."""
    if wanted == LAST:
        newest = api.jobs(limit=1).jobs
        if not newest:
            raise CliError("there are no jobs yet", code=ExitCode.NOT_FOUND, hint="trackside submit job.yaml")
        return newest[0]
    if _ID.fullmatch(wanted):
        return api.job(wanted)
    matches = [job for job in api.all_jobs(name=wanted, most=RECENT_MAX) if job.name == wanted]
    if not matches and _ID_START.fullmatch(wanted):
        matches = [job for job in api.all_jobs(most=RECENT_MAX) if job.id.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    raise _ambiguous(wanted, matches) if matches else _unknown(api, wanted)


def _ambiguous(wanted: str, matches: Sequence[JobView]) -> CliError:
    lines = [f"  {job.id}  {job.name}  {state(job.phase).word}" for job in matches[:LISTED_MAX]]
    more = [f"  and {len(matches) - LISTED_MAX} more"] if len(matches) > LISTED_MAX else []
    message = "\n".join([f"{wanted} means {len(matches)} jobs:", *lines, *more])
    return CliError(message, code=ExitCode.NOT_FOUND, hint="give the beginning of one id")


def _unknown(api: Api, wanted: str) -> CliError:
    names = [job.name for job in api.jobs(limit=200).jobs]
    close = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {close[0]}?" if close else "see the jobs there are: trackside ls"
    return CliError(f"no job called {wanted}", code=ExitCode.NOT_FOUND, hint=hint)
