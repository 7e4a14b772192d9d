"""What the README and the examples show works as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, wait_until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parent.parent.parent


def run(script: str, home: Path, *arguments: str) -> str:
    """Run a script as a user with this home would."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sdk_snippet_of_the_readme_creates_a_job(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / ".trackside").mkdir()
    shutil.copy(server.data_dir / "credentials.json", tmp_path / ".trackside")
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    job_id, phase = run(snippet, tmp_path).split()
    assert phase in ("Pending", "Running", "Completed")
    assert wait_until(client_of(server), job_id).status.phase == "Completed"


def test_the_quickstart_example_runs(server: LiveServer, tmp_path: Path) -> None:
    script = (ROOT / "examples" / "sdk_quickstart.py").read_text()
    told = run(script, tmp_path, str(server.data_dir / "credentials.json"))
    assert "Completed after" in told
    assert "worker-1 said worker 1 of 2" in told
