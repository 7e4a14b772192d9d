"""Knows in which ways a caller of PAI-DLC proves who it is.

By signature (ACS3-HMAC-SHA256, or the older ROA HMAC-SHA1), by a bearer token, or by a job's own token: that
one reads a single job and nothing else. A job's token beside a signature changes nothing of who calls, but it
must be good, and for the job that is asked for.
"""

from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

from trackside.api.authenticate import keys_for
from trackside.api.operation import Signed
from trackside.auth import acs3, roa_sha1
from trackside.auth.directory import Directory
from trackside.auth.nonces import Nonces
from trackside.auth.temporary import TemporaryKeys
from trackside.domain.errors import Forbidden, Unauthenticated
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, ProjectId
from trackside.service.tokens import JobToken

BEARER = "Bearer "
BEARER_TYPE = "BEARERTOKEN"
TOKEN_NAMES = (b"Token", b"token")  # of the query; dashboards spell it small
READING = ("GET", "HEAD")
NOT_BY_TOKEN = ("paidlc:GetWebTerminal",)  # a GET that lets its caller type
# Operations that name their job in the query; everywhere else a job in the query is only a filter.
JOB_IN_QUERY = {"paidlc:GetMetrics": b"JobId"}

JobInPath = Callable[[ProjectId, Mapping[str, str]], Job | None]


class AcsAuthenticator:
    """Turn a signature or a token into a caller."""

    def __init__(
        self,
        directory: Directory,
        *,
        nonces: Nonces,
        temporary: TemporaryKeys,
        open_token: Callable[[str], JobToken],
        caller_named: Callable[[str], Caller | None],
        job_in_path: JobInPath,
        now_ms: Callable[[], int],
        window_seconds: int = acs3.WINDOW_SECONDS,
        allow_roa_sha1: bool = True,
    ) -> None:
        self._directory = directory
        self._nonces = nonces
        self._temporary = temporary
        self._open_token = open_token
        self._caller_named = caller_named
        self._job_in_path = job_in_path
        self._now_ms = now_ms
        self._window_seconds = window_seconds
        self._allow_roa_sha1 = allow_roa_sha1

    def __call__(self, signed: Signed) -> Caller:
        """Return who sent the request; raise Unauthenticated or Forbidden."""
        authorization = signed.headers.get("authorization", "")
        token = _query_value(signed.raw_query, TOKEN_NAMES)
        bearer = _bearer(signed.headers, authorization)
        if bearer is not None:
            caller = self._directory.caller_of_token(bearer) or self._token_holder(bearer, signed)
        elif authorization:
            caller = self._signer(signed, authorization)
        elif token:
            return self._token_holder(token, signed)
        else:
            raise Unauthenticated(
                "The request is not signed: send an ACS3-HMAC-SHA256 Authorization header, a bearer token, or"
                " the Token of the job that is asked for."
            )
        if token:
            self._check_token(token, caller, signed)
        return caller

    def _signer(self, signed: Signed, authorization: str) -> Caller:
        if not authorization.startswith(roa_sha1.SCHEME):
            verify = acs3.verify
        elif self._allow_roa_sha1:
            verify = roa_sha1.verify
        else:
            raise Unauthenticated(
                "HMAC-SHA1 signatures are switched off here: use an SDK that signs with ACS3-HMAC-SHA256."
            )
        keys = keys_for(signed.headers.get("x-acs-security-token"), self._directory, self._temporary)
        proof = verify(
            method=signed.method,
            raw_path=signed.raw_path,
            raw_query=signed.raw_query,
            headers=signed.headers,
            body=signed.body,
            secret_of=keys.secret_of,
            now_ms=self._now_ms(),
            window_seconds=self._window_seconds,
        )
        self._nonces.take(proof)
        caller = keys.caller_of_access_key(proof.access_key)
        assert caller is not None, "they knew the secret a moment ago"
        return caller

    def _token_holder(self, token: str, signed: Signed) -> Caller:
        """Return on whose behalf a job's token speaks, where it may: reading that job."""
        opened = self._open_token(token)
        caller = self._caller_named(opened.user)
        if caller is None or caller.project_id != opened.project_id:
            raise Unauthenticated("The user who asked for this token is gone.")
        if signed.method not in READING or signed.action in NOT_BY_TOKEN:
            raise Forbidden("The token of a job lets its holder read that job and do nothing else.")
        if self._job_asked_for(opened.project_id, signed) != opened.job_id:
            raise Forbidden("The token is for another job than the one asked for.")
        return caller

    def _check_token(self, token: str, caller: Caller, signed: Signed) -> None:
        opened = self._open_token(token)
        asked = self._job_asked_for(caller.project_id, signed)
        if opened.project_id != caller.project_id or asked not in (None, opened.job_id):
            raise Forbidden("The token is for another job than the one asked for.")

    def _job_asked_for(self, project_id: ProjectId, signed: Signed) -> JobId | None:
        path: Mapping[str, str] = signed.path
        name = JOB_IN_QUERY.get(signed.action)
        if name is not None:
            path = {"JobId": _query_value(signed.raw_query, (name,)) or ""}
        job = self._job_in_path(project_id, path)
        return None if job is None else job.id


def _bearer(headers: Mapping[str, str], authorization: str) -> str | None:
    if authorization.startswith(BEARER):
        return authorization[len(BEARER) :].strip()
    token = headers.get("x-acs-bearer-token")
    if authorization or not token:
        return None
    if headers.get("x-acs-signature-type", "").upper() != BEARER_TYPE:
        raise Unauthenticated(f"x-acs-bearer-token goes with x-acs-signature-type: {BEARER_TYPE}.")
    return token


def _query_value(raw_query: bytes, names: tuple[bytes, ...]) -> str | None:
    """Return the last value that a query has under one of the names, as handlers read it."""
    found = None
    if not any(name in raw_query for name in names) and b"%" not in raw_query:
        return None
    for part in raw_query.replace(b"+", b" ").split(b"&"):
        name, _, value = part.partition(b"=")
        if (unquote_to_bytes(name) if b"%" in name else name) in names:
            found = unquote_to_bytes(value).decode("utf-8", "replace")
    return found or None
