"""Knows where the command line finds the server and its keys: the environment, then credentials.json."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from trackside.cli.errors import CliError, ExitCode, Usage

KEYS = ("endpoint", "project_id", "access_key", "secret_key")
SIGN_IN_HINT = (
    "start a server on this machine with `trackside serve`, or set TRACKSIDE_ENDPOINT, TRACKSIDE_PROJECT_ID,"
    " TRACKSIDE_ACCESS_KEY and TRACKSIDE_SECRET_KEY"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server and who we are there."""

    endpoint: str
    project_id: str
    access_key: str
    secret_key: str = field(repr=False)


def data_dir() -> Path:
    """Return the default data directory."""
    return Path(os.environ.get("TRACKSIDE_DATA_DIR") or Path.home() / ".trackside").expanduser()


def load(server: str | None = None) -> Settings:
    """Return the settings, or say how to get some. `server` replaces the endpoint."""
    named = {key: os.environ.get(f"TRACKSIDE_{key.upper()}") for key in KEYS}
    if server:
        named["endpoint"] = server
    missing = [key for key in KEYS if not named[key]]
    if missing:
        kept = _credentials(data_dir() / "credentials.json")
        named |= {key: kept.get(key) for key in missing}
    absent = [key for key in KEYS if not named[key]]
    if absent:
        raise CliError(
            f"not signed in: no {' or '.join(absent)} in the environment or in {data_dir()}/credentials.json",
            code=ExitCode.NOT_ALLOWED,
            hint=SIGN_IN_HINT,
        )
    return Settings(
        **{key: str(named[key]) for key in KEYS} | {"endpoint": _endpoint(str(named["endpoint"]))}
    )


def read(path: Path) -> Settings:
    """Return the settings a credentials file holds."""
    kept = _credentials(path)
    absent = [key for key in KEYS if not kept.get(key)]
    if absent:
        raise CliError(f"{path} has no {' or '.join(absent)}", code=ExitCode.NOT_ALLOWED, hint=SIGN_IN_HINT)
    return Settings(**{key: kept[key] for key in KEYS})


def _endpoint(text: str) -> str:
    if "://" not in text:
        text = f"http://{text}"
    if not text.startswith(("http://", "https://")):
        raise Usage(f"the server's address must begin with http:// or https://, not {text!r}")
    return text.rstrip("/")


def _credentials(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CliError(
            f"cannot read {path}: {error.strerror}", code=ExitCode.NOT_ALLOWED, hint=SIGN_IN_HINT
        ) from error
    except ValueError as error:
        raise CliError(f"{path} is not JSON", code=ExitCode.NOT_ALLOWED, hint=SIGN_IN_HINT) from error
    if not isinstance(kept, dict):
        raise CliError(f"{path} is not a JSON object", code=ExitCode.NOT_ALLOWED, hint=SIGN_IN_HINT)
    return {key: value for key, value in kept.items() if isinstance(value, str)}
