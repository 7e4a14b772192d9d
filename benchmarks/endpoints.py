"""Details and metrics, signature checked, against a bare handler that returns the same bytes."""

import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer

from benchmarks.server import Bench, create, running_server
from benchmarks.tools import have, p50, progress

ROUNDS = 3
SECONDS = 4
CONNECTIONS = 8

BARE = """
import sys, uvicorn
from pathlib import Path
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
content = Path(sys.argv[1]).read_bytes()
async def answer(request):
    return Response(content, media_type="application/json")
app = Starlette(routes=[Route("/{path:path}", answer)])
uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="error", loop="uvloop", http="httptools")
"""


def run() -> None:
    """Print requests per second and the ratio to the bare handler."""
    if not have("wrk"):
        return
    with running_server() as bench:
        job_id = create(bench.client(), "sleep 1")
        bench.wait(job_id, "Completed")
        paths = {
            "details": f"/v2/{bench.project_id}/training-jobs/{job_id}",
            "metrics": f"/v2/{bench.project_id}/training-jobs/{job_id}/metrics/worker-0",
        }
        print(f"{'endpoint':<10}{'bytes':>7}{'bare/s':>10}{'ours/s':>10}{'ratio':>8}   (must be >= 0.50)")
        for name, path in paths.items():
            _compare(bench, name, path)


def _compare(bench: Bench, name: str, path: str) -> None:
    headers = _signed(bench, path)
    content = _body(bench, path)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "content"
        file.write_bytes(content)
        port = _free_port()
        bare = subprocess.Popen([sys.executable, "-c", BARE, str(file), str(port)])
        try:
            _wait_port(port)
            ratios, ours, theirs = [], [], []
            for number in range(ROUNDS):
                progress(f"{name}: round {number + 1} of {ROUNDS}")
                theirs.append(_wrk(f"http://127.0.0.1:{port}{path}", headers))
                ours.append(_wrk(f"{bench.endpoint}{path}", headers))
                ratios.append(ours[-1] / theirs[-1])
        finally:
            bare.terminate()
            bare.wait()
    print(f"{name:<10}{len(content):>7}{p50(theirs):>10.0f}{p50(ours):>10.0f}{p50(ratios):>8.2f}")


def _signed(bench: Bench, path: str) -> dict[str, str]:
    """Return the headers the SDK itself would send."""
    request = SdkRequest(
        method="GET",
        schema="http",
        host=bench.endpoint.removeprefix("http://"),
        resource_path=path,
        uri=path,
        query_params=[],
        header_params={"Content-Type": "application/json", "X-Project-Id": bench.project_id},
        body="",
    )
    credentials = BasicCredentials(bench.keys["access_key"], bench.keys["secret_key"], bench.project_id)
    signed: Any = Signer(credentials).sign(request)
    return {name: value for name, value in signed.header_params.items() if name.lower() != "host"}


def _body(bench: Bench, path: str) -> bytes:
    import http.client
    from urllib.parse import urlsplit

    address = urlsplit(bench.endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request("GET", path, headers=_signed(bench, path))
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content
    return content


def _wrk(url: str, headers: dict[str, str]) -> float:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s"]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in out, out
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    assert found, out
    return float(found[1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_port(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("the bare handler did not start")
