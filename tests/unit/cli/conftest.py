"""Fixtures of the command line's tests: a fake server, and the command run in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.cli.fake_server import FakeServer, fake_server
from trackside.cli.main import main
from trackside.cli.session import current


class Ran(NamedTuple):
    """What a run of the command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ENDPOINT", "PROJECT_ID", "ACCESS_KEY", "SECRET_KEY", "DEBUG"):
        monkeypatch.delenv(f"TRACKSIDE_{name}", raising=False)
    monkeypatch.setenv("TRACKSIDE_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setattr("trackside.cli.follow.POLL_SECONDS", 0.01)
    monkeypatch.setattr("trackside.cli.logs.FOLLOW_SECONDS", 0.01)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing may go through it to loopback
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with fake_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run_main(*arguments: str) -> Ran:
        code = main(arguments)
        api = current.session._api
        if api is not None:
            api.client.close()
        captured = capfd.readouterr()
        return Ran(int(code), captured.out, captured.err)

    return run_main
