"""One running job, read through three dialects at the same moment: the same job, the same numbers."""

import http.client
import json
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from huaweicloudsdkmodelarts.v1 import DeleteTrainingJobRequest

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, submit, wait_until
from tests.e2e.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
KB, MB = 1024, 1024 * 1024
TOLERANCE = 0.01  # what the dialects round to
# The same quantity in each dialect's name, with what one of its units is in ours.
SAME = (
    # v2, v1, DLC, v1 unit, DLC unit
    ("cpuUsage", "cpuUsage", "CpuCoreUsage", 1, 1),
    ("memUsage", "memUsage", "MemoryUsage", 1, 1),
    (None, "diskWriteRate", "DiskWriteRate", KB, MB),
    (None, "diskReadRate", "DiskReadRate", KB, MB),
    (None, "recvBytesRate", "NetworkInputRate", KB, MB),
    (None, "sendBytesRate", "NetworkOutputRate", KB, MB),
)
WORK = """
import os, socket, threading, time
door = socket.create_server(("127.0.0.1", 0))
def answer():
    peer, _ = door.accept()
    while peer.recv(65536):
        pass
threading.Thread(target=answer, daemon=True).start()
line = socket.create_connection(door.getsockname())
while True:
    with open("data", "wb") as file:
        file.write(os.urandom(200_000))
        os.fsync(file.fileno())
    line.sendall(b"x" * 100_000)
    time.sleep(0.1)
"""


def read(server: LiveServer, path: str, **query: str) -> Any:
    """Read a path of any dialect with the admin's token."""
    address = urlsplit(server.endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request("GET", target, headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body
    finally:
        connection.close()


def v2_values(server: LiveServer, job_id: str) -> dict[str, list[float]]:
    found = read(server, f"/v2/{server.project_id}/training-jobs/{job_id}/metrics/worker-0")
    return {metric["metric"]: metric["value"] for metric in found["metrics"]}


def v1_values(server: LiveServer, ids: tuple[int, int]) -> dict[str, list[float]]:
    base = f"/v1/{server.project_id}/training-jobs/{ids[0]}/versions/{ids[1]}"
    found = read(server, f"{base}/pod/worker-0/metric-statistic")
    assert found["interval"] == 1
    return {metric["metric"]: [float(text) for text in metric["value"]] for metric in found["metrics"]}


def dlc_values(server: LiveServer, dlc_id: str, metric: str) -> dict[int, float]:
    found = read(server, f"/api/v1/jobs/{dlc_id}/metrics", MetricType=metric, TimeStep="1m")
    (pod,) = found["PodMetrics"]
    assert pod["PodId"] == f"{dlc_id}-worker-0"
    return {point["Time"]: point["Value"] for point in pod["Metrics"]}


def test_one_running_job_has_the_same_numbers_in_every_dialect(server: LiveServer) -> None:
    client = client_of(server)
    job_id = submit(client, f"python - <<'END'\n{WORK}\nEND", name="three-dialects")
    wait_until(client, job_id, "Running")
    native = read(server, f"/api/trackside/v1/jobs/{job_id}")
    versions = read(server, f"/v1/{server.project_id}/training-jobs/versions", limit="0")["versions"]
    (mine,) = [version for version in versions if version["version_id"] == native["number"]]
    (dlc,) = read(server, "/api/v1/jobs", DisplayName="three-dialects")["Jobs"]
    try:
        eventually(lambda: v2_values(server, job_id)["cpuUsage"], "no minute came to its end", seconds=100)
        compare(server, job_id, (native["number"], native["number"]), dlc["JobId"])
        assert mine["status"] == 8
        assert dlc["Status"] == "Running"
        assert details(client, job_id).status.phase == "Running"
    finally:
        client.delete_training_job(DeleteTrainingJobRequest(training_job_id=job_id))


def compare(server: LiveServer, job_id: str, v1_ids: tuple[int, int], dlc_id: str) -> None:
    """Compare every minute that all three dialects show."""
    v2, v1 = v2_values(server, job_id), v1_values(server, v1_ids)
    start = read(server, f"/api/trackside/v1/jobs/{job_id}")["tasks"][0]["started_at_ms"] // 60_000 * 60_000
    compared = 0
    for v2_name, v1_name, dlc_name, v1_unit, dlc_unit in SAME:
        dlc = dlc_values(server, dlc_id, dlc_name)
        for number, shown in enumerate(v1[v1_name]):
            point = dlc.get(start + number * 60_000)
            if shown == -1:
                assert point is None
                continue
            assert point is not None, f"{dlc_name} has no point for minute {number}"
            assert point * dlc_unit == pytest.approx(shown * v1_unit, rel=TOLERANCE, abs=0.01 * dlc_unit)
            if v2_name is not None and number < len(v2[v2_name]):
                assert v2[v2_name][number] == pytest.approx(shown, rel=TOLERANCE, abs=0.01)
            compared += 1
    assert compared >= len(SAME), "every quantity was compared at least once"
