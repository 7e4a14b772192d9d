"""A data directory that is removed takes its agent along."""

import shutil

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import process_named
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


def test_nothing_lives_on_without_its_data_directory(own_server: LiveServer) -> None:
    own_server.start()
    own_server.kill()
    home = str(own_server.data_dir)
    assert process_named("trackside", home)
    shutil.rmtree(own_server.data_dir)
    eventually(lambda: not process_named("trackside", home), "the agent or its forker lives on", seconds=60)
