"""The Alibaba SDKs' signers, from the environments that the end-to-end tests make for them."""

import importlib
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.dlc_sdk import CURRENT, OLD, python_with_sdk


@pytest.fixture(scope="session")
def sdk_signers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the SDKs' packages importable, behind all that is here already."""
    pythons = [python_with_sdk(request.config, version) for version in (CURRENT, OLD)]
    places = [str(next(python.parents[1].glob("lib/python*/site-packages"))) for python in pythons]
    sys.path.extend(places)
    importlib.import_module("alibabacloud_tea_openapi.utils")
    importlib.import_module("alibabacloud_openapi_util.client")
    yield
    for place in places:
        sys.path.remove(place)
