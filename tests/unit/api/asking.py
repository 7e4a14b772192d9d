"""Asks a dispatcher as a connection does, without a socket."""

import json
from typing import Any
from urllib.parse import quote, urlencode

from trackside.api.message import Answer, Application, Request


async def ask(app: Application, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
    """Send a request and return status and decoded body; a body that is not bytes is sent as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = app(Request(method, quote(path).encode(), urlencode(query).encode(), {}, content))
    if not isinstance(answer, Answer):
        answer = await answer
    assert isinstance(answer.content, bytes), "it is not sent piece by piece"
    return answer.status, json.loads(answer.content)
