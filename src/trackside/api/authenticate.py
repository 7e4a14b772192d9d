"""Knows in which ways a caller of the Huawei dialects and of our own API proves who it is."""

from collections.abc import Callable

from trackside.api.operation import Signed
from trackside.auth import sdk_hmac
from trackside.auth.directory import Directory
from trackside.auth.temporary import OpenedKeys, TemporaryKeys
from trackside.domain.errors import Forbidden, Unauthenticated
from trackside.domain.identity import Caller

_BEARER = "Bearer "


class Authenticator:
    """Turn a signature or a token into a caller, and hold callers to their project.

    A signature counts before a token: the SDK signs every request, also one with X-Auth-Token. A request with
    an X-Security-Token is signed with the temporary keys that belong to it.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        now_ms: Callable[[], int],
        window_seconds: int = sdk_hmac.WINDOW_SECONDS,
        temporary: TemporaryKeys | None = None,
    ) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._window_seconds = window_seconds
        self._temporary = temporary

    def __call__(self, signed: Signed) -> Caller:
        """Return who sent the request; raise Unauthenticated or Forbidden."""
        caller = self._caller(signed)
        _check_project(caller, signed)
        return caller

    def _caller(self, signed: Signed) -> Caller:
        authorization = signed.headers.get("authorization", "")
        if authorization.startswith(_BEARER):
            return self._token_caller(authorization[len(_BEARER) :].strip())
        token = signed.headers.get("x-auth-token")
        if token and not authorization:
            return self._token_caller(token)
        if not authorization:
            raise Unauthenticated(
                "The request is not signed: send an SDK-HMAC-SHA256 Authorization header, an X-Auth-Token"
                " or a bearer token."
            )
        keys = keys_for(signed.headers.get("x-security-token"), self._directory, self._temporary)
        access_key = sdk_hmac.verify(
            method=signed.method,
            raw_path=signed.raw_path,
            raw_query=signed.raw_query,
            headers=signed.headers,
            body=signed.body,
            secret_of=keys.secret_of,
            now_ms=self._now_ms(),
            window_seconds=self._window_seconds,
        )
        caller = keys.caller_of_access_key(access_key)
        assert caller is not None, "they knew the secret a moment ago"
        return caller

    def _token_caller(self, token: str) -> Caller:
        caller = self._directory.caller_of_token(token)
        if caller is None:
            raise Unauthenticated("The token is not known.")
        return caller


def keys_for(
    security_token: str | None, directory: Directory, temporary: TemporaryKeys | None
) -> Directory | OpenedKeys:
    """Return the keys a request may be signed with: everybody's, or those of its security token alone."""
    if not security_token:
        return directory
    if temporary is None:
        raise Unauthenticated("Security tokens are not taken here.")
    return temporary.open(security_token)


def _check_project(caller: Caller, signed: Signed) -> None:
    named = signed.path.get("project_id")
    stated = signed.headers.get("x-project-id")
    if stated and named is not None and stated != named:
        raise Unauthenticated("The X-Project-Id header and the path name different projects.")
    project_id = named if named is not None else stated
    if project_id and project_id != caller.project_id:
        raise Forbidden("The access key or token belongs to another project than the one asked for.")
