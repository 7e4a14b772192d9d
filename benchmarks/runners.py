"""From the submit to a running process, from an exit to its record, and 500 no-op jobs; peers beside us."""

import os
import select
import subprocess
import tempfile
import threading
import time
import xmlrpc.client
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.server import Bench, create, running_server
from benchmarks.tools import have, p50, p99, progress

SINGLES = 50
NOOPS = 500
SUBMITTERS = 8
STAMP = "exec date +%s%N"  # the process says itself when it ran

Row = tuple[str, list[float], list[float], float]


def run() -> None:
    """Print our figures and the peers'."""
    rows = [_popen()]
    if have("tsp"):
        rows.append(_task_spooler())
    if have("supervisord"):
        rows.append(_supervisord())
    rows.append(_trackside())
    limit = p50(rows[0][1]), p50(rows[0][2])
    heads = (("start p50", 10), ("p99", 8), ("x limit", 9), ("exit p50", 10), ("p99", 8), ("x limit", 9))
    print(f"{'runner':<14}" + "".join(f"{head:>{width}}" for head, width in heads) + f"{'500 jobs':>10}")
    for name, starts, exits, total in rows:
        print(
            f"{name:<14}{p50(starts):>8.1f}ms{p99(starts):>6.0f}ms{p50(starts) / limit[0]:>9.1f}"
            f"{p50(exits):>8.1f}ms{p99(exits):>6.0f}ms{p50(exits) / limit[1]:>9.1f}{total:>9.1f}s"
        )
    print("must be: start <= 60 ms, exit <= 20 ms, 500 jobs <= 15 s; reach for 15 ms, 3 ms, 4 s")


def _popen() -> Row:
    """The bare limit: fork, exec, and a pidfd that tells of the exit."""
    progress("plain Popen")
    starts, exits = [], []
    for _ in range(SINGLES):
        began = time.time_ns()
        child = subprocess.Popen(["sh", "-c", STAMP], stdout=subprocess.PIPE)
        pidfd = os.pidfd_open(child.pid)
        select.select([pidfd], [], [])
        recorded = time.time_ns()
        os.close(pidfd)
        assert child.stdout is not None
        stamp = int(child.stdout.read())
        child.stdout.close()
        child.wait()
        starts.append((stamp - began) / 1e6)
        exits.append((recorded - stamp) / 1e6)
    began_all = time.monotonic()
    for _ in range(NOOPS):
        subprocess.run(["sh", "-c", "true"], check=True)
    return "Popen (limit)", starts, exits, time.monotonic() - began_all


def _task_spooler() -> Row:
    progress("task-spooler")
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "TS_SOCKET": f"{directory}/socket", "TMPDIR": directory}

        def tsp(*arguments: str) -> str:
            done = subprocess.run(
                ["tsp", *arguments], env=environment, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        starts, exits = [], []
        for _ in range(SINGLES):
            began = time.time_ns()
            number = tsp("sh", "-c", STAMP)
            tsp("-w", number)
            recorded = time.time_ns()
            stamp = int(Path(tsp("-o", number)).read_text())
            starts.append((stamp - began) / 1e6)
            exits.append((recorded - stamp) / 1e6)
        tsp("-C")
        began_all = time.monotonic()
        for _ in range(NOOPS):
            number = tsp("sh", "-c", "true")
        tsp("-w", number)
        total = time.monotonic() - began_all
        tsp("-K")
    return "task-spooler", starts, exits, total


class _UnixTransport(xmlrpc.client.Transport):
    """Speaks XML-RPC over supervisord's socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> HTTPConnection:
        import socket

        path = self._path

        class Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock = socket.socket(socket.AF_UNIX)
                self.sock.connect(path)

        return Connection("localhost")


def _supervisord() -> Row:
    progress("supervisord")
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "supervisord.conf"
        stamp = STAMP.replace("%", "%%")
        jobs = "".join(
            f"[program:p{i}]\ncommand=sh -c '{stamp}'\nautostart=false\nautorestart=false\n"
            f"startsecs=0\nstdout_logfile={directory}/p{i}.log\n"
            for i in range(SINGLES)
        )
        noops = "".join(
            f"[program:n{i}]\ncommand=true\nautostart=false\nautorestart=false\nstartsecs=0\n"
            "stdout_logfile=NONE\nstderr_logfile=NONE\n"
            for i in range(NOOPS)
        )
        socket_path = f"{directory}/s"
        config.write_text(
            f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={directory}/pid\n"
            f"minfds=4096\n[unix_http_server]\nfile={socket_path}\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = "
            "supervisor.rpcinterface:make_main_rpcinterface\n" + jobs + noops
        )
        daemon = subprocess.Popen(
            ["supervisord", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not Path(socket_path).exists():
                time.sleep(0.05)
            rpc: Any = xmlrpc.client.ServerProxy("http://x", transport=_UnixTransport(socket_path)).supervisor
            return _drive_supervisord(rpc, directory)
        finally:
            daemon.terminate()
            daemon.wait()


def _drive_supervisord(rpc: Any, directory: str) -> Row:
    starts, exits = [], []
    for i in range(SINGLES):
        began = time.time_ns()
        rpc.startProcess(f"p{i}", False)
        while rpc.getProcessInfo(f"p{i}")["statename"] != "EXITED":
            time.sleep(0.0005)
        recorded = time.time_ns()
        stamp = int(Path(f"{directory}/p{i}.log").read_text())
        starts.append((stamp - began) / 1e6)
        exits.append((recorded - stamp) / 1e6)
    began_all = time.monotonic()
    for i in range(NOOPS):
        rpc.startProcess(f"n{i}", False)
    while any(
        info["statename"] not in ("EXITED",) for info in rpc.getAllProcessInfo() if info["name"][0] == "n"
    ):
        time.sleep(0.05)
    return "supervisord", starts, exits, time.monotonic() - began_all


def _trackside() -> Row:
    progress("trackside: every start signed by the SDK, durable before it is answered")
    with running_server() as bench:
        client = bench.client()
        starts, exits = [], []
        for _ in range(SINGLES):
            began = time.time_ns()
            job_id = create(client, STAMP)
            bench.wait(job_id, "Completed")
            recorded = time.time_ns()
            stamp = int(bench.log(job_id))
            starts.append((stamp - began) / 1e6)
            exits.append((recorded - stamp) / 1e6)
        return "trackside", starts, exits, _noops(bench)


def _noops(bench: Bench) -> float:
    local = threading.local()

    def submit(_: int) -> str:
        if not hasattr(local, "client"):
            local.client = bench.client()
        return create(local.client, "true", cores=0.02, memory_gb=0.02)

    began = time.monotonic()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        ids = list(pool.map(submit, range(NOOPS)))
    _wait_all(bench, ids)
    return time.monotonic() - began


def _wait_all(bench: Bench, ids: list[str]) -> None:
    for job_id in ids:
        while (phase := bench.phase(job_id)) != "Completed":
            assert phase not in ("Failed", "Abnormal", "Terminated"), phase
            time.sleep(0.002)
