"""A node is emptied: its jobs get TERM, are recorded as evicted and run again elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import SECOND, Cluster, two_nodes
from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import details, submit, wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

# Says that it was asked to end; ends by itself only in its second attempt.
STUBBORN = (
    "trap 'touch {asked}; exit 3' TERM; "
    '[ "$MA_SCHEDULE_CNT" -gt 1 ] || while [ ! -e {done} ]; do sleep 0.05; done'
)


def drain(cluster: Cluster, node: str, *flags: str) -> str:
    server = cluster.server
    environment = {
        "TRACKSIDE_ENDPOINT": server.endpoint,
        "TRACKSIDE_PROJECT_ID": server.project_id,
        "TRACKSIDE_ACCESS_KEY": server.access_key,
        "TRACKSIDE_SECRET_KEY": server.secret_key,
        "PATH": "/usr/bin:/bin",
        "HOME": str(server.data_dir),
    }
    command = [sys.executable, "-m", "trackside", "pool", "drain", node, *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_draining_with_eviction_moves_the_jobs(
    own_server: LiveServer, tmp_path: Path, open_dir: Path
) -> None:
    with two_nodes(own_server, tmp_path / "second") as cluster:
        asked, done = open_dir / "asked", open_dir / "done"
        job = submit(cluster.client, STUBBORN.format(asked=asked, done=done))
        wait_until(cluster.client, job, "Running")
        (home,) = cluster.places(job)
        other = SECOND if home != SECOND else cluster.first
        assert "draining" in drain(cluster, home)
        assert details(cluster.client, job).status.phase == "Running", "without --evict it goes on"
        assert "draining" in drain(cluster, home, "--evict")
        over = wait_until(cluster.client, job, "Completed")
        assert asked.exists(), "it was asked with TERM first"
        first, second = over.status.running_records
        assert first.end_reason == f"admin emptied the node {home}"
        assert second.start_at >= first.end_at
        assert cluster.places(job) == [other]
        records = cluster.ask("GET", f"/jobs/{job}")["records"]
        assert [record["reason"]["code"] for record in records] == ["evicted", "completed"]

        stays = submit(cluster.client, f"while [ ! -e {done} ]; do sleep 0.05; done")
        wait_until(cluster.client, stays, "Running")
        assert cluster.places(stays) == [other], "the emptied node takes nothing"
        assert "only a node that is drained" in cluster.refused(
            "POST", f"/nodes/{home}/actions", {"action": "lock", "evict": True}
        )
        cluster.ask("POST", f"/nodes/{home}/actions", {"action": "unlock"})
        cluster.ask("POST", f"/nodes/{other}/actions", {"action": "drain", "evict": True})
        eventually(lambda: cluster.places(stays) == [home], "it does not move back")
        done.touch()
        wait_until(cluster.client, stays, "Completed")
