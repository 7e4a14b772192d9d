"""Gives all tests what more than one folder of them asks for."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.requirements import missing

NVML_SOURCE = Path(__file__).parent / "stubs" / "nvml" / "stub.c"


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in for NVIDIA's library and return the folder it is in."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    built = str(folder / "libnvidia-ml.so.1")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", built, str(NVML_SOURCE)], check=True
    )
    return folder
