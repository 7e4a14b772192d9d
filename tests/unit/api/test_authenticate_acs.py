"""Who a request of PAI-DLC comes from, whichever way it proves it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.unit.auth.acs_signers import ACCESS, DATE_MS, SECRET, plain_acs3, plain_roa
from tests.unit.domain.builders import a_job
from trackside.api.authenticate_acs import AcsAuthenticator
from trackside.api.operation import Signed
from trackside.auth.directory import Directory, caller_of
from trackside.auth.nonces import Nonces
from trackside.auth.temporary import TemporaryKeys
from trackside.auth.tokens import digest
from trackside.domain.errors import Forbidden, Unauthenticated
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import Job, ProjectId
from trackside.service.tokens import Tokens

ANN = User(
    name="ann",
    project_id=ProjectId("p"),
    role=UserRole.USER,
    access_key=ACCESS,
    secret_key=SECRET,
    token_digest=digest("Tann"),
)
MINE = a_job(short_id="mine")
OTHER = a_job(id="22222222-2222-4222-8222-222222222222", short_id="other")
JOBS = {"dlcmine": MINE, "dlcother": OTHER}
CLOCK: Any = SimpleNamespace(now_ms=lambda: DATE_MS)
TOKENS = Tokens(key=b"k", clock=CLOCK)


class Here:
    """An authenticator with one user and two jobs."""

    def __init__(self, **options: Any) -> None:
        self.users: dict[str, Caller] = {"ann": caller_of(ANN)}
        self.temporary = TemporaryKeys(key=b"k", now_ms=CLOCK.now_ms, caller_named=self.users.get)
        self.authenticate = AcsAuthenticator(
            Directory([ANN]),
            nonces=Nonces(now_ms=CLOCK.now_ms, window_seconds=900),
            temporary=self.temporary,
            open_token=TOKENS.open,
            caller_named=self.users.get,
            job_in_path=self.job_in_path,
            now_ms=CLOCK.now_ms,
            **options,
        )

    def job_in_path(self, project_id: ProjectId, path: Any) -> Job | None:
        return JOBS.get(path.get("JobId", ""))

    def ask(
        self,
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        job: str = "dlcmine",
        action: str = "paidlc:GetJob",
        **query: str,
    ) -> str:
        path = {"JobId": job} if job else {}
        raw_query = urlencode(query).encode()
        signed = Signed(method, b"/api/v1/jobs/dlc1", raw_query, headers or {}, b"", path, action)
        return self.authenticate(signed).user


@pytest.fixture
def here() -> Here:
    return Here()


def token(job: Job = MINE) -> str:
    return TOKENS.issue(caller_of(ANN), job, 60)


def bearer(value: str) -> dict[str, str]:
    return {"x-acs-bearer-token": value, "x-acs-signature-type": "BEARERTOKEN"}


def test_signatures_and_bearer_tokens_say_who_calls(here: Here) -> None:
    assert here.ask(plain_acs3().headers) == "ann"
    assert here.ask(plain_roa(x_acs_signature_nonce="another").headers) == "ann"
    assert here.ask(bearer("Tann")) == "ann"
    assert here.ask({"authorization": "Bearer Tann"}) == "ann"


def test_what_is_not_signed_is_refused(here: Here) -> None:
    for headers in ({}, {"authorization": "Basic x"}, bearer("Teve"), {"x-acs-bearer-token": "Tann"}):
        with pytest.raises(Unauthenticated):
            here.ask(headers)
    with pytest.raises(Unauthenticated, match="goes with"):
        here.ask({"x-acs-bearer-token": "Tann"})


def test_a_replay_is_refused_across_schemes(here: Here) -> None:
    here.ask(plain_acs3().headers)
    for headers in (plain_acs3().headers, plain_roa().headers):
        with pytest.raises(Unauthenticated, match="made already"):
            here.ask(headers)


def test_what_fails_the_check_uses_up_no_nonce(here: Here) -> None:
    with pytest.raises(Unauthenticated, match="does not match"):
        here.ask(plain_acs3(secret="wrong").headers)
    assert here.ask(plain_acs3().headers) == "ann"


def test_hmac_sha1_can_be_switched_off() -> None:
    here = Here(allow_roa_sha1=False)
    with pytest.raises(Unauthenticated, match="switched off"):
        here.ask(plain_roa().headers)
    assert here.ask(plain_acs3().headers) == "ann"


@pytest.mark.parametrize("sign", [plain_acs3, plain_roa])
def test_temporary_keys_go_with_their_token_only(here: Here, sign: Any) -> None:
    keys = here.temporary.issue(caller_of(ANN), 60)
    pair: dict[str, str] = {"access": keys.access_key, "secret": keys.secret_key}
    assert here.ask(sign(**pair, x_acs_security_token=keys.security_token).headers) == "ann"
    with pytest.raises(Unauthenticated, match="Unknown access key"):
        here.ask(sign(**pair).headers)
    with pytest.raises(Unauthenticated, match="Unknown access key"):
        here.ask(sign(x_acs_security_token=keys.security_token).headers)
    with pytest.raises(Unauthenticated, match="not one of this server"):
        here.ask(sign(**pair, x_acs_security_token="made up").headers)


def test_a_jobs_token_alone_reads_that_job(here: Here) -> None:
    assert here.ask(Token=token()) == "ann"
    assert here.ask(token=token(), method="HEAD") == "ann"
    assert here.ask(bearer(token())) == "ann"
    assert here.ask(job="", action="paidlc:GetMetrics", JobId="dlcmine", Token=token()) == "ann"


@pytest.mark.parametrize(
    "asked",
    [
        {"job": "dlcother"},
        {"job": "dlcgone"},
        {"job": ""},
        {"job": "", "action": "paidlc:ListJobs", "JobId": "dlcmine"},
        {"job": "", "action": "paidlc:GetMetrics"},
        {"job": "", "action": "paidlc:GetMetrics", "JobId": "dlcother"},
        {"method": "DELETE"},
        {"method": "POST"},
        {"action": "paidlc:GetWebTerminal"},
    ],
)
def test_a_jobs_token_alone_does_nothing_else(here: Here, asked: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        here.ask(**asked, Token=token())
    with pytest.raises(Forbidden):
        here.ask(bearer(token()), **asked)


def test_a_jobs_token_ends_with_who_asked_for_it(here: Here) -> None:
    given = token()
    here.users["ann"] = replace(here.users["ann"], project_id=ProjectId("q"))
    with pytest.raises(Unauthenticated, match="gone"):
        here.ask(Token=given)
    del here.users["ann"]
    with pytest.raises(Unauthenticated, match="gone"):
        here.ask(Token=given)


def test_a_token_beside_another_proof_must_be_good_and_for_that_job(here: Here) -> None:
    known = bearer("Tann")
    assert here.ask(known, Token=token()) == "ann"
    assert here.ask(known, method="DELETE", Token=token()) == "ann"
    assert here.ask(known, job="", Token=token()) == "ann"
    with pytest.raises(Forbidden):
        here.ask(known, job="dlcother", Token=token())
    with pytest.raises(Forbidden):
        here.ask(known, Token=token(replace(MINE, project_id=ProjectId("q"))))
    for bad in ("made up", token()[:-1], "é"):
        with pytest.raises(Unauthenticated):
            here.ask(known, Token=bad)
    signed = plain_acs3(pairs=(("Token", token(OTHER)),)).headers
    with pytest.raises(Forbidden):
        here.ask(signed, Token=token(OTHER))


def test_the_last_token_of_a_query_counts_also_when_its_name_is_quoted(here: Here) -> None:
    path = {"JobId": "dlcmine"}
    raw_query = f"Token=bad&%54oken={token()}".encode()
    signed = Signed("GET", b"/api/v1/jobs/dlcmine", raw_query, {}, b"", path, "paidlc:GetJob")
    assert here.authenticate(signed).user == "ann"
