"""Knows the tokens that let somebody read one job for a while: sealed, not stored."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

from trackside.domain.errors import Invalid, Unauthenticated
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, ProjectId
from trackside.ports import Clock

SECONDS_MAX = 7 * 24 * 3600
SECONDS_DEFAULT = SECONDS_MAX
_SEAL_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToken:
    """What a token lets its holder do: read this job until then, on behalf of who asked for it."""

    project_id: ProjectId
    job_id: JobId
    user: str
    expires_s: int


class Tokens:
    """Issue and open job tokens."""

    def __init__(self, *, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    def issue(self, caller: Caller, job: Job, seconds: int = SECONDS_DEFAULT) -> str:
        """Return a token that reads the job for so many seconds."""
        if not 1 <= seconds <= SECONDS_MAX:
            raise Invalid(f"a token lasts 1 to {SECONDS_MAX:,} seconds, not {seconds:,}")
        expires = self._clock.now_ms() // 1000 + seconds
        said = json.dumps([job.project_id, job.id, caller.user, expires], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._seal(said) + said).decode().rstrip("=")

    def open(self, token: str) -> JobToken:
        """Return what a token says, or refuse one that is over or was not made here."""
        try:
            whole = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            raise Unauthenticated("this is not a token of this server") from None
        seal, said = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(said)):
            raise Unauthenticated("this is not a token of this server")
        project_id, job_id, user, expires = json.loads(said)
        if self._clock.now_ms() // 1000 >= expires:
            raise Unauthenticated("this token is over: ask for a new one")
        return JobToken(
            project_id=ProjectId(project_id), job_id=JobId(job_id), user=user, expires_s=int(expires)
        )

    def _seal(self, said: bytes) -> bytes:
        return hmac.digest(self._key, b"job-token\n" + said, "sha256")
