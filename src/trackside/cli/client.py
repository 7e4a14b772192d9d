"""Knows how to speak HTTP to one server: sign, send, read JSON, and turn refusals into CliErrors."""

import http.client
import ipaddress
import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from trackside.cli.errors import CliError, ExitCode, Refused, Unreachable
from trackside.cli.settings import Settings
from trackside.cli.signing import Pairs, query_string, sign

TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PIECE_BYTES = 256 * 1024
TRIES = 2  # a kept connection may have been closed by the server meanwhile

CODE_OF_STATUS = {
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
}
HINT_OF_STATUS = {
    401: "check the keys (TRACKSIDE_ACCESS_KEY and TRACKSIDE_SECRET_KEY, or credentials.json) and this"
    " machine's clock: trackside doctor",
    403: "ask an administrator for the role you need",
}


class Client:
    """A signed client of one server; keeps its connection open between calls."""

    def __init__(self, settings: Settings, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.settings = settings
        self.timeout_seconds = timeout_seconds
        self._address = urlsplit(settings.endpoint)
        self._connection: http.client.HTTPConnection | None = None
        self._proxied = False

    def get(self, path: str, query: Pairs = ()) -> dict[str, Any]:
        """Return the JSON object at a path."""
        answer = self.call("GET", path, query=query)
        if not isinstance(answer, dict):
            raise strange_answer(self.settings.endpoint)
        return answer

    def post(self, path: str, body: object) -> Any:
        """Send a JSON body; return the JSON that comes back."""
        return self.call("POST", path, body=json.dumps(body).encode())

    def delete(self, path: str) -> Any:
        """Delete what is at a path."""
        return self.call("DELETE", path)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Pairs = (),
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> Any:
        """Make one signed call; return its JSON, None for an empty answer, or raise a CliError."""
        status, content = self._exchange(
            method, quote(path, safe="/~"), query_string(query), body, content_type
        )
        if status >= 400:
            raise refusal(status, content)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise strange_answer(self.settings.endpoint) from error

    def raw(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Return status, content and headers of an unsigned GET."""
        connection = self._connected()
        try:
            connection.request("GET", self._target(path), headers={"Host": self._address.netloc})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read(ANSWER_BYTES_MAX), headers
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            self.close()

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield what is at a path, a piece at a time; raise if it breaks off before its end."""
        quoted = quote(path, safe="/~")
        self.close()
        connection = self._connected()
        try:
            signed = self._signed("GET", quoted, "", b"", "application/json")
            connection.request("GET", self._target(quoted), headers=signed)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise refusal(answer.status, answer.read(ANSWER_BYTES_MAX))
            while piece := answer.read(PIECE_BYTES):
                yield piece
        except http.client.IncompleteRead as error:
            raise Unreachable("the server broke off before the end", "see its log, and try again") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, path: str, query: str, body: bytes, content_type: str
    ) -> tuple[int, bytes]:
        signed = self._signed(method, path, query, body, content_type)
        target = self._target(f"{path}?{query}" if query else path)
        if method == "POST":
            self.close()  # a new connection never makes us wonder whether to send it twice
        for attempt in range(1, TRIES + 1):
            fresh = self._connection is None
            connection = self._connected()
            try:
                connection.request(method, target, body=body or None, headers=signed)
                answer = connection.getresponse()
                return answer.status, answer.read(ANSWER_BYTES_MAX)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # Only a kept connection that the server has closed meanwhile is tried again.
                if fresh or attempt == TRIES or not isinstance(error, http.client.RemoteDisconnected):
                    raise self._unreachable(error) from error
        raise AssertionError("the last try returns or raises")

    def _signed(self, method: str, path: str, query: str, body: bytes, content_type: str) -> dict[str, str]:
        headers = {
            "Host": self._address.netloc,
            "Content-Type": content_type,
            "X-Project-Id": self.settings.project_id,
        }
        return sign(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=body,
            access_key=self.settings.access_key,
            secret_key=self.settings.secret_key,
        )

    def _target(self, path: str) -> str:
        return f"{self.settings.endpoint}{path}" if self._proxied else path

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> http.client.HTTPConnection:
        host, secure = self._address.hostname or "", self._address.scheme == "https"
        port = self._address.port or (443 if secure else 80)
        proxy = None if is_loopback(host) else proxy_for(self._address.scheme, host)
        self._proxied = proxy is not None and not secure
        at = (proxy[0], proxy[1]) if proxy else (host, port)
        if not secure:
            return http.client.HTTPConnection(*at, timeout=self.timeout_seconds)
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(*at, timeout=self.timeout_seconds, context=context)
        if proxy:
            connection.set_tunnel(host, port)
        return connection

    def _unreachable(self, error: Exception) -> Unreachable:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        here = is_loopback(self._address.hostname or "")
        hint = (
            "start it with: trackside serve"
            if here
            else "check the address and the network: trackside doctor"
        )
        return Unreachable(f"the server at {self.settings.endpoint} cannot be reached ({why})", hint)


def strange_answer(endpoint: str) -> CliError:
    """Return the error for an answer that is not what was asked for."""
    return CliError(
        f"{endpoint} does not answer like a Trackside server of this version",
        code=ExitCode.UNEXPECTED,
        hint="check the address: trackside doctor",
    )


def refusal(status: int, content: bytes) -> CliError:
    """Return the error a refused call is shown as."""
    message, code = f"the server answered {status}", None
    try:
        told = json.loads(content)
    except ValueError:
        told = None
    if status == http.HTTPStatus.NOT_FOUND and not isinstance(told, dict):
        return CliError(
            f"{message}, and not like a Trackside server",
            code=ExitCode.UNEXPECTED,
            hint="check the address: trackside doctor",
        )
    if isinstance(told, dict):
        message = str(told.get("error_msg") or told.get("message") or message)
        code = told.get("error_code")
    if code and str(code) not in message:
        message = f"{message} [{code}]"
    if status >= 500:
        return CliError(message, code=ExitCode.UNEXPECTED, hint="the server's log says more")
    hint = HINT_OF_STATUS.get(status)
    if status in CODE_OF_STATUS:
        return CliError(message, code=CODE_OF_STATUS[status], hint=hint)
    return Refused(message, hint)


def is_loopback(host: str) -> bool:
    """Say whether a host name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_for(scheme: str, host: str) -> tuple[str, int] | None:
    """Return the proxy that the environment names for a host."""
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(scheme)
    if not address or proxy_bypass(host):
        return None
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None
