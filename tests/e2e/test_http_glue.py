"""The HTTP glue on a real socket: a toy dialect, spoken to as clients and as trouble-makers do."""

import asyncio
import http.client
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Any, cast

import msgspec
import pytest
import uvloop
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer

from trackside.api.app import App, build_app
from trackside.api.authenticate import Authenticator
from trackside.api.connection import Limits
from trackside.api.operation import Call, Dialect, Operation, Param, Raw, Streamed
from trackside.api.server import serve
from trackside.auth.directory import Directory
from trackside.auth.tokens import digest
from trackside.domain.errors import ErrorKind, IllegalTransition, TracksideError
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import ProjectId
from trackside.service import Services

pytestmark = pytest.mark.e2e

ACCESS, SECRET, TOKEN = "AKTOY", "toy-secret-key", "toy-token"
VIEWER_TOKEN = "viewer-token"
BODY_BYTES_MAX = 4096
LARGE_BYTES = 1_000_000
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
DEADLINE_SECONDS = 10.0
STATUS_OF = {
    ErrorKind.MALFORMED: 400,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.CONFLICT: 409,
    ErrorKind.UNAVAILABLE: 503,
}


class Meta(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(max_length=8)]
    tags: dict[str, str] = {}


class Thing(msgspec.Struct):
    meta: Meta
    count: int = 1


async def echo(call: Call) -> dict[str, Any]:
    return {
        "path": dict(call.path),
        "query": dict(call.query),
        "user": call.caller.user,
        "id": call.request_id,
    }


async def create(call: Call) -> Any:
    return call.body


async def refuse(call: Call) -> None:
    raise IllegalTransition("the thing is done")


async def bug(call: Call) -> None:
    raise RuntimeError("internals: " + SECRET)


async def nothing(call: Call) -> None:
    return None


async def numbers(call: Call) -> list[float]:
    return [1.5, float("nan"), float("inf")]


async def unspeakable(call: Call) -> object:
    return object()


async def raw(call: Call) -> Raw:
    return Raw(content=b"plain", media_type="text/plain", status=202, headers={"X-Extra": "yes"})


async def large(call: Call) -> Raw:
    return Raw(content=b"x" * LARGE_BYTES)


async def pieces(call: Call) -> Streamed:
    async def made() -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(0)
            yield b"piece %d " % number
        if call.query_one("breaks"):
            raise RuntimeError("the disk is gone")

    return Streamed(content=made(), media_type="application/zip", headers={"X-Name": "a"})


async def flood(call: Call) -> Streamed:
    async def made() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * LARGE_BYTES

    return Streamed(content=made(), media_type="application/zip")


async def long_poll(call: Call) -> None:
    await asyncio.Event().wait()


def toy(authenticate: Callable[..., Caller]) -> Dialect:
    def operation(name: str, method: str, path: str, handler: Any, **more: Any) -> Operation:
        action = f"toy:{name}"
        return Operation(
            name=name, method=method, path=path, action=action, handler=handler, summary=name, **more
        )

    params = (
        Param(name="limit", type=int, minimum=1, maximum=100),
        Param(name="sort", choices=("name", "time")),
        Param(name="deep", type=bool),
        Param(name="tag", repeated=True, max_length=5),
    )
    return Dialect(
        name="toy",
        title="A toy",
        operations=[
            operation("Show", "GET", "/toy/{project_id}/things/{thing_id}", echo, query=params),
            operation("Search", "GET", "/toy/{project_id}/things/special", echo),
            operation(
                "Create", "POST", "/toy/{project_id}/things", create, body=Thing, status=201, response=Thing
            ),
            operation("Change", "PUT", "/toy/{project_id}/things", create, body=Thing, body_required=False),
            operation("Delete", "DELETE", "/toy/{project_id}/things/{thing_id}", nothing, status=204),
            operation("Refuse", "GET", "/toy/{project_id}/refuse", refuse),
            operation("Bug", "GET", "/toy/{project_id}/bug", bug),
            operation("Nothing", "POST", "/toy/{project_id}/nothing", nothing),
            operation("Numbers", "GET", "/toy/{project_id}/numbers", numbers),
            operation("Unspeakable", "GET", "/toy/{project_id}/unspeakable", unspeakable),
            operation("Raw", "GET", "/toy/{project_id}/raw", raw),
            operation("Large", "GET", "/toy/{project_id}/large", large, prompt=True),
            operation("Pieces", "GET", "/toy/{project_id}/pieces", pieces),
            operation("Flood", "GET", "/toy/{project_id}/flood", flood),
            operation("Poll", "GET", "/toy/{project_id}/poll", long_poll),
        ],
        authenticate=authenticate,
        error=say_no,
        unexpected=lambda request_id: (500, {"no": "bug", "why": "Something went wrong.", "id": request_id}),
        request_id_header="X-Toy-Id",
    )


def say_no(error: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    return STATUS_OF.get(error.kind, 400), {"no": error.kind, "why": error.detail, "id": request_id}


def may(caller: Caller, operation: Operation, path: Mapping[str, str]) -> bool:
    return operation.method == "GET" or caller.role is UserRole.ADMIN


def user(name: str, role: UserRole, access_key: str, token: str) -> User:
    return User(
        name=name,
        project_id=ProjectId("p"),
        role=role,
        access_key=access_key,
        secret_key=SECRET,
        token_digest=digest(token),
    )


def app(ready: str | None = None) -> App:
    directory = Directory(
        [user("ann", UserRole.ADMIN, ACCESS, TOKEN), user("vic", UserRole.VIEWER, "AKVIC", VIEWER_TOKEN)]
    )
    authenticate = Authenticator(directory, now_ms=lambda: time.time_ns() // 1_000_000)

    async def is_ready() -> str | None:
        return ready

    async def broken() -> Raw:
        raise RuntimeError(SECRET)

    return build_app(
        [toy(authenticate)],
        services=cast(Services, None),
        allowed=may,
        ready=is_ready,
        extra={"/broken": broken},
    )


@contextmanager
def live(application: App, limits: Limits | None = None) -> Iterator[int]:
    """Serve in a thread of its own; yield the port."""
    port: list[int] = []
    up = threading.Event()
    loop = uvloop.new_event_loop()

    def started(number: int) -> None:
        port.append(number)
        up.set()

    async def main() -> None:
        await serve(
            application,
            host="127.0.0.1",
            port=0,
            started=started,
            limits=limits,
            body_bytes_max=BODY_BYTES_MAX,
            grace_seconds=1,
        )

    task = loop.create_task(main())

    def run() -> None:
        with closing(loop):
            asyncio.set_event_loop(loop)
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(DEADLINE_SECONDS)
        yield port[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with live(app()) as number:
        yield number


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.content = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def ask(
    port: int,
    method: str,
    target: str,
    body: bytes | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    token: str | None = TOKEN,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    with closing(connection):
        sent = {"X-Auth-Token": token} if token else {}
        connection.request(method, target, body, {**sent, **(headers or {})})
        with connection.getresponse() as response:
            return Answer(response)


def shout(port: int, *parts: bytes) -> bytes:
    """Send bytes as they are and return everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
        return everything(connection)


def everything(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


def signed(
    port: int, method: str, path: str, *, query: Sequence[tuple[str, Any]] = (), body: bytes = b""
) -> Answer:
    request = SdkRequest(
        method=method,
        schema="http",
        host=f"127.0.0.1:{port}",
        resource_path=path,
        query_params=list(query),
        header_params={"Content-Type": "application/json", "X-Project-Id": "p"},
        body=body,
    )
    Signer(BasicCredentials(ACCESS, SECRET, "p")).sign(request)
    return ask(port, method, request.uri, body or None, headers=request.header_params, token=None)


# What works


def test_a_signed_request_is_answered(port: int) -> None:
    answer = signed(port, "GET", "/toy/p/things/%E8%AE%AD%20x", query=[("tag", ["a b", "+"]), ("limit", 5)])
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-toy-id"] == answer.json["id"]
    assert "date" in answer.headers
    assert "server" not in answer.headers
    assert answer.json["path"] == {"project_id": "p", "thing_id": "训 x"}
    assert answer.json["query"] == {"limit": ["5"], "tag": ["+", "a b"]}


def test_a_signed_body_is_decoded(port: int) -> None:
    answer = signed(port, "POST", "/toy/p/things", body=b'{"meta":{"name":"x"},"count":3}')
    assert (answer.status, answer.json) == (201, {"meta": {"name": "x", "tags": {}}, "count": 3})


def test_a_token_will_do(port: int) -> None:
    assert ask(port, "GET", "/toy/p/things/a").json["user"] == "ann"
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(port, "GET", "/toy/p/things/a", headers=bearer, token=None).json["user"] == "ann"


def test_white_space_around_a_header_value_is_not_part_of_it(port: int) -> None:
    request = (
        f"GET /toy/p/things/a HTTP/1.1\r\nHost: x\r\nX-Auth-Token: \t {TOKEN} \t\r\nConnection: close\r\n\r\n"
    )
    assert shout(port, request.encode()).startswith(b"HTTP/1.1 200 ")


def test_request_ids_differ(port: int) -> None:
    assert ask(port, "GET", "/toy/p/things/a").json["id"] != ask(port, "GET", "/toy/p/things/a").json["id"]


def test_a_literal_segment_wins_over_a_parameter(port: int) -> None:
    assert ask(port, "GET", "/toy/p/things/special").json["path"] == {"project_id": "p"}


def test_no_result_is_an_empty_object_or_nothing(port: int) -> None:
    assert ask(port, "POST", "/toy/p/nothing").content == b"{}"
    gone = ask(port, "DELETE", "/toy/p/things/a")
    assert (gone.status, gone.content) == (204, b"")
    assert "content-length" not in gone.headers


def test_an_optional_body_may_be_missing(port: int) -> None:
    assert ask(port, "PUT", "/toy/p/things").json == {}


def test_numbers_that_json_does_not_know_become_null(port: int) -> None:
    assert ask(port, "GET", "/toy/p/numbers").content == b"[1.5,null,null]"


def test_an_encoded_answer_goes_through(port: int) -> None:
    answer = ask(port, "GET", "/toy/p/raw")
    assert (answer.status, answer.content) == (202, b"plain")
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["x-extra"] == "yes"
    assert "x-toy-id" in answer.headers


def test_a_host_with_a_scheme_is_taken(port: int) -> None:
    answer = ask(port, "GET", "/toy/p/things/a", headers={"Host": f"http://127.0.0.1:{port}"})
    assert answer.status == 200


def test_head_is_get_without_a_body(port: int) -> None:
    answer = ask(port, "HEAD", "/toy/p/things/a")
    assert (answer.status, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_options_says_what_is_allowed(port: int) -> None:
    answer = ask(port, "OPTIONS", "/toy/p/things/a", token=None)
    assert (answer.status, answer.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS")


def test_a_body_that_waits_to_be_asked_for_is_asked_for(port: int) -> None:
    head = (
        f"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\nExpect: 100-continue\r\n"
        "Content-Length: 21\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b'{"meta":{"name":"x"}}')
        assert everything(connection).startswith(b"HTTP/1.1 201 ")


def test_chunked_bodies_and_pipelined_requests_are_read(port: int) -> None:
    post = (
        f"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    body = b'b\r\n{"meta":{"n\r\na\r\name":"x"}}\r\n0\r\n\r\n'
    last = f"GET /toy/p/raw HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\nConnection: close\r\n\r\n"
    answer = shout(port, post.encode() + body, last.encode())
    assert answer.count(b"HTTP/1.1 201 ") == 1
    assert answer.endswith(b"plain")


def test_what_follows_a_body_is_no_header(port: int) -> None:
    post = "POST /toy/p/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailer = f"0\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
    assert shout(port, (post + trailer).encode()).startswith(b"HTTP/1.1 401 ")


def test_requests_for_another_protocol_are_answered_and_so_is_the_next(port: int) -> None:
    first = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    assert shout(port, first * 1500 + LAST).count(b"HTTP/1.1 200 ") == 1501


@pytest.mark.parametrize(
    ("length", "body"),
    [
        ("Content-Length: 21", '{"meta":{"name":"x"}}'),
        ("Transfer-Encoding: chunked", '15\r\n{"meta":{"name":"x"}}\r\n0\r\n\r\n'),
    ],
)
def test_a_request_for_another_protocol_has_its_body(port: int, length: str, body: str) -> None:
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
    head = f"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n{upgrade}\r\n{length}\r\n\r\n"
    received = shout(port, (head + body).encode() + LAST)
    assert received.startswith(b"HTTP/1.1 201 ")
    assert b'"name":"x"' in received
    assert received.count(b"HTTP/1.1 200 ") == 1


def test_an_old_client_need_not_name_the_host(port: int) -> None:
    assert shout(port, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert shout(port, b"GET /toy/p/raw HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 401 ")


def test_a_body_may_come_letter_by_letter(port: int) -> None:
    body = b"".join(b"1\r\n%c\r\n" % letter for letter in b'{"meta":{"name":"x"},"count":3}') + b"0\r\n\r\n"
    post = (
        f"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    answer = shout(port, post.encode() + body)
    assert json.loads(answer.split(b"\r\n\r\n")[1])["count"] == 3


def test_an_answer_is_sent_while_it_is_made(port: int) -> None:
    answer = ask(port, "GET", "/toy/p/pieces")
    assert (answer.status, answer.content) == (200, b"piece 0 piece 1 piece 2 ")
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["x-name"] == "a"
    assert answer.headers["transfer-encoding"] == "chunked"
    head = ask(port, "HEAD", "/toy/p/pieces")
    assert (head.status, head.content) == (200, b"")


def test_an_old_client_gets_pieces_without_chunks(port: int) -> None:
    request = f"GET /toy/p/pieces HTTP/1.0\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
    assert shout(port, request.encode()).endswith(b"\r\n\r\npiece 0 piece 1 piece 2 ")


def test_an_answer_that_breaks_is_cut_off(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(port, "GET", "/toy/p/pieces?breaks=yes")
    assert "an answer broke off: Pieces" in caplog.text


def test_a_client_that_does_not_read_is_not_read_from(port: int) -> None:
    """What it asks meanwhile is answered when it reads again, in order."""
    request = f"GET /toy/p/large HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n".encode()
    last = f"GET /toy/p/raw HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(request * 20 + last.encode())
        assert ask(port, "GET", "/healthz").status == 200, "others are served meanwhile"
        received = everything(connection)
    assert received.count(b"HTTP/1.1 200 ") == 20
    assert received.count(b"x" * LARGE_BYTES) == 20
    assert received.endswith(b"plain")


def test_answers_come_in_the_order_of_the_questions(port: int) -> None:
    def request(path: str, more: str = "") -> str:
        return f"GET /toy/p/{path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n{more}\r\n"

    asked = (
        request("pieces") + request("large") + request("numbers") + request("raw", "Connection: close\r\n")
    )
    received = shout(port, asked.encode())
    order = [received.index(part) for part in (b"piece 2", b"x" * LARGE_BYTES, b"[1.5,", b"plain")]
    assert order == sorted(order)


# What is refused


def refused(answer: Answer, status: int, kind: str) -> str:
    """Check that a refusal is in the dialect's shape; return its text."""
    assert (answer.status, answer.json["no"]) == (status, kind)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-toy-id"] == answer.json["id"]
    return str(answer.json["why"])


@pytest.mark.parametrize(
    "target",
    [
        "/toy/p/nowhere",
        "/toy/p/things/a%2Fb",
        "/toy/p/things/a%00",
        "/toy/p/things/%ff",
        "/toy//things/a",
        "/toy",
    ],
)
def test_an_unknown_path_is_not_found_in_the_words_of_the_dialect(port: int, target: str) -> None:
    assert target in refused(ask(port, "GET", target), 404, "not_found")


def test_a_path_of_nobody_is_not_found(port: int) -> None:
    answer = ask(port, "GET", "/elsewhere")
    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert answer.headers["x-request-id"] == answer.json["requestId"]


def test_options_of_the_server_itself_is_not_found(port: int) -> None:
    answer = shout(port, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_a_wrong_method_says_which_are_right(port: int) -> None:
    answer = ask(port, "PATCH", "/toy/p/things")
    assert "PATCH" in refused(answer, 405, "invalid")
    assert answer.headers["allow"] == "OPTIONS, POST, PUT"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "not signed"),
        ({"X-Auth-Token": "wrong"}, "token is not known"),
        ({"Authorization": "Bearer wrong"}, "token is not known"),
        ({"Authorization": "Basic abc"}, "not of the form"),
        ({"X-Auth-Token": TOKEN, "X-Project-Id": "q"}, "different projects"),
    ],
)
def test_who_cannot_prove_it_is_nobody(port: int, headers: dict[str, str], said: str) -> None:
    assert said in refused(
        ask(port, "GET", "/toy/p/things/a", headers=headers, token=None), 401, "unauthenticated"
    )


def test_a_signature_is_checked(port: int) -> None:
    path = "/toy/p/things/a"
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    authorization = f"SDK-HMAC-SHA256 Access={ACCESS}, SignedHeaders=host;x-sdk-date, Signature={'0' * 64}"
    answer = ask(port, "GET", path, headers={"X-Sdk-Date": date, "Authorization": authorization})
    assert "does not match" in refused(answer, 401, "unauthenticated")


def test_another_project_is_forbidden(port: int) -> None:
    assert "another project" in refused(ask(port, "GET", "/toy/q/things/a"), 403, "forbidden")


def test_what_a_role_may_not_do_is_forbidden_whatever_the_body(port: int) -> None:
    answer = ask(port, "POST", "/toy/p/things", b"rubbish", token=VIEWER_TOKEN)
    assert "toy:Create" in refused(answer, 403, "forbidden")
    assert ask(port, "GET", "/toy/p/things/a", token=VIEWER_TOKEN).status == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=abc", 'limit is "abc"; a whole number'),
        ("limit=0", 'limit is "0"; allowed are 1 to 100'),
        ("limit=1&limit=2", "limit is given 2 times"),
        ("sort=size", 'sort is "size"; allowed are name, time'),
        ("deep=perhaps", "allowed are true and false"),
        ("tag=ok&tag=toolong", "at most 5"),
        ("x=%00", "NUL"),
        ("x=%ff", "UTF-8"),
    ],
)
def test_a_wrong_query_says_what_is_allowed(port: int, query: str, said: str) -> None:
    assert said in refused(ask(port, "GET", f"/toy/p/things/a?{query}"), 400, "invalid")


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"", "malformed", "empty"),
        (b"{", "malformed", "not valid JSON"),
        (b'{"meta":{"name":"\xff"}}', "malformed", "UTF-8"),
        (b"[" * 4000, "invalid", "body: expected object"),
        (b'{"x":' + b"[" * 2000 + b"]" * 2000 + b',"meta":{"name":"x"}}', "malformed", "deeply"),
        (b"[]", "invalid", "body: expected object"),
        (b'{"meta":{"name":5}}', "invalid", "meta.name: expected str, got int"),
        (b'{"meta":{}}', "invalid", "meta: object missing required field name"),
        (b'{"meta":{"name":"123456789"}}', "invalid", "meta.name: expected str of length <= 8"),
        (b'{"meta":{"name":"x"},"count":"1"}', "invalid", "count: expected int, got str"),
        (b'{"meta":{"name":"a\\u0000b"}}', "invalid", "meta.name: a NUL"),
        (b'{"meta":{"name":"x"},"count":NaN}', "malformed", "not valid JSON"),
    ],
)
def test_a_wrong_body_says_where(port: int, body: bytes, kind: str, said: str) -> None:
    assert said in refused(ask(port, "POST", "/toy/p/things", body), 400, kind)


def test_a_backslash_before_u0000_is_no_nul(port: int) -> None:
    answer = ask(port, "POST", "/toy/p/things", b'{"meta":{"name":"\\\\u0000"}}')
    assert (answer.status, answer.json["meta"]["name"]) == (201, "\\u0000")


def test_a_body_over_the_limit_is_too_large(port: int) -> None:
    body = b" " * (BODY_BYTES_MAX + 1)
    assert str(BODY_BYTES_MAX) in refused(ask(port, "POST", "/toy/p/things", body), 413, "too_large")
    chunked = (
        "POST /toy/p/things HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    answer = shout(port, chunked.encode(), b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_connection_lives_on_after_a_body_that_was_too_large(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as connection:
        connection.request("POST", "/toy/p/things", b" " * 1_000_000)
        with connection.getresponse() as response:
            assert Answer(response).status == 413
        connection.request("GET", "/healthz")
        with connection.getresponse() as response:
            assert Answer(response).status == 200


def test_what_a_handler_refuses_is_said_by_the_dialect(port: int) -> None:
    assert refused(ask(port, "GET", "/toy/p/refuse"), 409, "conflict") == "the thing is done"


@pytest.mark.parametrize("what", ["bug", "unspeakable"])
def test_a_bug_is_logged_and_not_shown(port: int, what: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "trackside.api"):
        answer = ask(port, "GET", f"/toy/p/{what}")
    refused(answer, 500, "bug")
    assert b"internals" not in answer.content
    assert b"Error" not in answer.content
    assert answer.json["id"] in caplog.text
    assert "Traceback" in caplog.text


# Beside the dialects


def test_health_and_readiness_need_no_proof(port: int) -> None:
    for path in ("/healthz", "/readyz"):
        answer = ask(port, "GET", path, token=None)
        assert (answer.status, answer.json) == (200, {"status": "ok"})
    refusal = ask(port, "POST", "/healthz", token=None)
    assert (refusal.status, refusal.headers["allow"]) == (405, "GET, HEAD")
    with live(app(ready="no database")) as other:
        answer = ask(other, "GET", "/readyz", token=None)
        assert (answer.status, answer.json["reason"]) == (503, "no database")
        assert ask(other, "GET", "/healthz", token=None).status == 200


def test_a_bug_in_a_plain_route_is_not_shown(port: int) -> None:
    answer = ask(port, "GET", "/broken", token=None)
    assert (answer.status, answer.json["code"]) == (500, "500")
    assert SECRET.encode() not in answer.content


def test_the_openapi_document_is_served(port: int) -> None:
    described = ask(port, "GET", "/openapi.json", token=None).json
    assert set(described["paths"]["/toy/{project_id}/things"]) == {"post", "put"}


# The guard


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\r\nhost: a\r\n\r\n",
    ],
)
def test_a_request_has_exactly_one_host(port: int, request_bytes: bytes) -> None:
    answer = shout(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"one Host header" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"rubbish\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_is_a_bad_request(port: int, request_bytes: bytes) -> None:
    answer = shout(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["code"] == "400"


@pytest.fixture(scope="module")
def strict_port() -> Iterator[int]:
    limits = Limits(connections_max=3, head_bytes_max=1000, head_seconds=0.2, body_seconds=0.2)
    with live(app(), limits) as number:
        yield number


def test_slow_headers_are_cut_off(strict_port: int) -> None:
    assert shout(strict_port, b"") == b""
    assert shout(strict_port, b"\r\n") == b""
    answer = shout(strict_port, b"GET /healthz HT")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"headers did not arrive" in answer


def test_blank_lines_do_not_keep_a_connection(strict_port: int) -> None:
    with socket.create_connection(("127.0.0.1", strict_port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\r\n")
        everything(connection)


def test_a_slow_body_is_cut_off(strict_port: int) -> None:
    answer = shout(strict_port, b"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"body did not arrive" in answer


def test_a_slow_body_after_its_refusal_gets_no_second_answer(strict_port: int) -> None:
    answer = shout(
        strict_port, b"POST /toy/p/things HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", b"{"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_slow_head_behind_a_request_under_way_gets_no_answer(strict_port: int) -> None:
    poll = f"GET /toy/p/poll HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
    assert shout(strict_port, poll.encode() + b"GET /heal") == b""


def test_a_request_under_way_is_not_cut_off(strict_port: int) -> None:
    poll = f"GET /toy/p/poll HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strict_port), timeout=0.6) as connection:
        connection.sendall(poll.encode())
        with pytest.raises(TimeoutError):
            connection.recv(1)


@pytest.mark.parametrize(("path", "times"), [("large", 20), ("flood", 1)])
def test_who_reads_nothing_is_cut_off(path: str, times: int) -> None:
    request = f"GET /toy/p/{path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n".encode()
    limits = Limits(idle_seconds=0.2, head_seconds=0.2, connections_max=1)
    with live(app(), limits) as port, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(request * times)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while shout(port).startswith(b"HTTP/1.1 503 "):
            assert time.monotonic() < deadline, "it keeps its place"
            time.sleep(0.02)


def test_headers_have_a_limit(strict_port: int) -> None:
    with socket.create_connection(("127.0.0.1", strict_port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * 1001)
        assert everything(connection).startswith(b"HTTP/1.1 431 ")


def test_a_client_that_goes_on_sending_hears_why_it_was_refused(strict_port: int) -> None:
    with socket.create_connection(("127.0.0.1", strict_port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        for number in range(2_000):
            connection.sendall(b"X-%d: " % number + b"a" * 1000 + b"\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 431 ")


def test_heads_are_counted_one_by_one(strict_port: int) -> None:
    """Requests that come in a stream, each cut somewhere in its head, are no large head."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Some: " + b"a" * 300 + b"\r\n\r\n"
    stream = request * 20
    with socket.create_connection(("127.0.0.1", strict_port), timeout=DEADLINE_SECONDS) as connection:
        received = b""
        for first in range(0, len(stream), 500):
            connection.sendall(stream[first : first + 500])
            whole = (first + 500) // len(request)
            while received.count(b"HTTP/1.1 200 ") < min(whole, 20):
                received += connection.recv(65536)
        assert received.count(b"HTTP/1.1 200 ") == 20


def test_many_small_requests_and_a_half_are_no_large_head(port: int) -> None:
    request = b"GET /toy/p/raw HTTP/1.1\r\nHost: x\r\nX-Auth-Token: " + TOKEN.encode() + b"\r\n\r\n"
    half, rest = request[:20], request[20:-2] + b"Connection: close\r\n\r\n"
    answers = shout(port, request * 2000 + half, rest)
    assert answers.count(b"HTTP/1.1 202 ") == 2001


@pytest.mark.parametrize("before", [b"0\r\nX-Big: ", b"1;extension="])
def test_what_is_no_content_in_a_body_has_a_limit(strict_port: int, before: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strict_port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(before + b"a" * 1001)
        assert everything(connection).startswith(b"HTTP/1.1 431 ")


def test_there_is_a_limit_to_connections() -> None:
    with live(app(), Limits(connections_max=2)) as port:
        first, second = (
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) for _ in range(2)
        )
        with first, second:
            for connection in (first, second):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert shout(port).startswith(b"HTTP/1.1 503 ")


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_although_a_poll_is_open(number: signal.Signals) -> None:
    polled: list[Answer] = []
    told = threading.Event()
    threads: list[threading.Thread] = []

    def poll(port: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as connection:
            connection.request("GET", "/toy/p/poll", headers={"X-Auth-Token": TOKEN})
            wait_until_polled(port)
            os.kill(os.getpid(), number)
            with connection.getresponse() as response:
                polled.append(Answer(response))

    def started(port: int) -> None:
        threads.append(threading.Thread(target=poll, args=(port,)))
        threads[0].start()

    asyncio.run(serve(app(), host="127.0.0.1", port=0, started=started, stopping=told.set, grace_seconds=1))
    threads[0].join(DEADLINE_SECONDS)
    assert told.is_set()
    assert refused(polled[0], 503, "unavailable").startswith("The server is stopping")


def test_a_second_signal_does_not_wait_for_the_grace() -> None:
    told = threading.Event()
    threads: list[threading.Thread] = []

    def insist(port: int) -> None:
        poll = f"GET /toy/p/poll HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(poll.encode())
            wait_until_polled(port)
            os.kill(os.getpid(), signal.SIGINT)
            assert told.wait(DEADLINE_SECONDS)
            os.kill(os.getpid(), signal.SIGINT)
            everything(connection)

    def started(port: int) -> None:
        threads.append(threading.Thread(target=insist, args=(port,)))
        threads[0].start()

    endless = serve(app(), host="127.0.0.1", port=0, started=started, stopping=told.set, grace_seconds=3600)
    asyncio.run(asyncio.wait_for(endless, DEADLINE_SECONDS * 3))
    threads[0].join(DEADLINE_SECONDS)
    assert not threads[0].is_alive()


def test_a_client_that_went_away_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    poll = f"GET /toy/p/poll HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {TOKEN}\r\n\r\n"
    with live(app()) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(poll.encode())
            wait_until_polled(port)
        assert ask(port, "GET", "/healthz").status == 200, "by now the server knows that it went"
    assert not caplog.records


def wait_until_polled(port: int) -> None:
    """Return once the server has taken an earlier request: it takes connections in order."""
    assert ask(port, "GET", "/healthz", token=None).status == 200


def test_a_port_that_is_taken_is_an_error(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        asyncio.run(serve(app(), host="127.0.0.1", port=port, started=lambda number: None))
