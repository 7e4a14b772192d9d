from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.api.pai_dlc.harness import Api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    opened = Api(tmp_path / "data")
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def strict_api(tmp_path: Path) -> Iterator[Api]:
    """A server that maps no engine and is strict about images."""
    opened = Api(tmp_path / "data", images="strict")
    try:
        yield opened
    finally:
        opened.close()
