"""Knows what to do with a test whose server or program is not on this machine."""

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test and say what is missing; fail instead when TRACKSIDE_TEST_REQUIRE=all."""
    if os.environ.get("TRACKSIDE_TEST_REQUIRE") == "all":
        pytest.fail(f"not on this machine: {what}")
    pytest.skip(f"not on this machine: {what}")
