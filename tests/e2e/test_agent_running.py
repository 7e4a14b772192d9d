"""A task runs as it should: its end is told truly, its limits hold, it sees nothing it must not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_harness import MIB, AgentProcess, FakeServer, alive, key, launch, node, until
from trackside.agent import cgroup
from trackside.domain.exchange import EndCause, Launch, Stop
from trackside.domain.job import Access, Channel
from trackside.domain.resources import Resources

pytestmark = pytest.mark.e2e
Node = tuple[FakeServer, AgentProcess]
SECRET = "fake-secret-of-the-agent"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users and mount")
with_limits = pytest.mark.skipif(
    not cgroup.detect().limits_memory, reason="no control group with a memory limit can be made here"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("data"), TRACKSIDE_FAKE_SECRET=SECRET) as made:
        yield made


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_codes_are_told(running: Node, code: int) -> None:
    server, _ = running
    ended = server.run(f"exit {code}")
    assert (ended.cause, ended.exit_code, ended.signal) == (EndCause.EXITED, code, None)
    assert not ended.stopped_by_us
    assert not ended.oom_killed
    assert ended.duration_ms is not None
    assert ended.ended_boot_ms is not None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_signals_are_told(running: Node, number: signal.Signals) -> None:
    server, _ = running
    ended = server.run(f"kill -{int(number)} $$")
    assert (ended.cause, ended.exit_code, ended.signal) == (EndCause.EXITED, None, number)


def test_start_comes_before_the_end_and_names_the_process(running: Node) -> None:
    server, agent = running
    ended = server.run("echo $$")
    started = server.started(ended.key)
    assert agent.log(ended.key).decode().split() == [str(started.pid)]
    order = [r for r in server.reports if (r.started or r.ended) and (r.started or r.ended).key == ended.key]
    assert [r.started is not None for r in order] == [True, False]


def test_arguments_reach_the_command_as_they_are(running: Node) -> None:
    server, agent = running
    ended = server.run("printf '%s|'", arguments=("--a=b c", "--q='$HOME'"))
    assert agent.log(ended.key) == b"--a=b c|--q='$HOME'|"


def test_boot_file_runs_with_the_environments_python(running: Node) -> None:
    server, agent = running
    code = agent.data_dir / "obs" / "bucket" / "code"
    code.mkdir(parents=True)
    (code / "train.py").write_text("import sys; print(sys.argv[1:], sys.executable); sys.exit(3)")
    ended = server.ended(
        server.order(launch(None, boot_file="train.py", code_url="obs://bucket/code/", arguments=("--lr=1",)))
    )
    assert ended.exit_code == 3, ended
    assert agent.log(ended.key).decode().split() == ["['--lr=1']", sys.executable]


def test_missing_code_is_a_staging_failure(running: Node) -> None:
    server, _ = running
    ended = server.ended(server.order(launch(None, boot_file="a.py", code_url="obs://bucket/nowhere/")))
    assert ended.cause is EndCause.STAGING_FAILED
    assert "obs://bucket/nowhere/" in ended.message


def test_a_command_that_cannot_start_says_why(running: Node) -> None:
    server, agent = running
    code = agent.data_dir / "obs" / "bucket" / "plain"
    code.mkdir(parents=True)
    (code / "train.py").write_text("")
    prefix = agent.data_dir / "broken"
    prefix.mkdir(mode=0o755)
    (prefix / "python").write_text("not a program")
    (prefix / "python").chmod(0o755)
    ended = server.ended(
        server.order(
            launch(None, boot_file="train.py", code_url="obs://bucket/plain/", path_prefix=(str(prefix),))
        )
    )
    assert ended.cause is EndCause.CANNOT_START
    assert "not a program" in ended.message
    assert ended.exit_code is None


def test_a_key_runs_once_however_often_it_is_ordered(running: Node) -> None:
    server, agent = running
    order = launch("echo once; sleep 0.2")
    server.order(order)
    for _ in range(5):
        server.order(order)
    server.ended(order.key)
    server.order(order)  # an answer that is older than the end
    server.run("true")
    assert agent.log(order.key) == b"once\n"


def test_background_children_do_not_outlive_the_command(running: Node) -> None:
    server, _ = running
    ended = server.run("sleep 1000 & (setsid sleep 1001 &) ; exit 5")
    assert ended.exit_code == 5
    assert alive(ended.key) == set()


def test_nothing_is_left_on_disk_but_the_log(running: Node) -> None:
    server, agent = running
    ended = server.run("echo $TMPDIR; touch $TMPDIR/x ~/y")
    tmp_dir = Path(agent.log(ended.key).decode().strip())
    gone = (tmp_dir, agent.state_dir(ended.key), agent.data_dir / "work" / ended.key.job_id)
    until(lambda: not any(path.exists() for path in gone))
    assert not any(path.name == str(ended.key) for path in Path("/sys/fs/cgroup").glob("*/trackside/*"))


def test_the_environment_is_made_from_nothing(running: Node) -> None:
    server, agent = running
    ended = server.run("env; cat /proc/self/environ", environment={"GIVEN": "yes"})
    told = agent.log(ended.key).decode()
    assert "GIVEN=yes" in told
    assert SECRET not in told
    assert server.token not in told
    names = {line.partition("=")[0] for line in told.splitlines() if "=" in line and "\0" not in line}
    assert names <= {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONUNBUFFERED", "GIVEN"),
        *("TRACKSIDE_TASK_KEY", "MA_JOB_DIR", "PWD", "OLDPWD", "SHLVL", "_"),
    }


@as_root
def test_privileges_are_dropped_for_good(running: Node) -> None:
    server, agent = running
    ended = server.run("id -u; id -G; grep -e ^NoNewPrivs -e ^CapEff -e ^CapPrm -e ^Groups /proc/self/status")
    lines = agent.log(ended.key).decode().split("\n")
    assert lines[:2] == ["65534", "65534"]
    fields = dict(line.split(":\t") for line in lines[2:] if line)
    assert fields["NoNewPrivs"] == "1"
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
    assert fields["Groups"].split() == []


@as_root
def test_a_task_sees_its_own_directory_and_nothing_else_of_the_data_dir(running: Node) -> None:
    server, agent = running
    ended = server.run(
        f"cd {agent.data_dir} && ls -A . && cat agent/token server.json; find {agent.data_dir} -type f;"
        " touch ~/mine && ls ~"
    )
    told = agent.log(ended.key).decode()
    assert told.splitlines()[0] == "work"
    assert server.token not in told
    assert "endpoint" not in told
    assert told.splitlines()[-1] == "mine"


@as_root
def test_python_runs_even_if_it_lives_where_the_user_cannot_go(running: Node) -> None:
    server, agent = running
    ended = server.run("python -c 'import ssl, sys; print(sys.prefix)'")
    assert (ended.exit_code, agent.log(ended.key).decode().strip()) == (0, sys.prefix)


@with_limits
def test_a_task_over_its_memory_is_killed_and_that_is_told(running: Node) -> None:
    server, _ = running
    eat = "python -S -c 'x = bytearray(400 << 20); print(len(x))'"
    ended = server.run(f"exec {eat}", memory_bytes=100 * MIB)
    assert (ended.signal, ended.oom_killed) == (signal.SIGKILL, True)
    assert ended.memory_peak_bytes is not None
    assert 90 * MIB < ended.memory_peak_bytes <= 100 * MIB


@with_limits
def test_a_child_over_the_memory_is_told_even_if_the_command_goes_on(running: Node) -> None:
    server, _ = running
    ended = server.run("python -S -c 'bytearray(400 << 20)'; exit 4", memory_bytes=100 * MIB)
    assert (ended.exit_code, ended.oom_killed) == (4, True)


@with_limits
def test_limits_are_written(running: Node) -> None:
    server, _ = running
    resources = Resources(cpu_cores=0.5, memory_bytes=300 * MIB)
    of = server.order(launch("sleep 60", resources=resources))
    server.started(of)
    dirs = cgroup.Cgroups(cgroup.detect()).dirs(str(of))
    memory = dirs.memory / "memory.limit_in_bytes" if dirs.memory else dirs.unified / "memory.max"  # type: ignore[operator]
    quota = dirs.cpu / "cpu.cfs_quota_us" if dirs.cpu else dirs.unified / "cpu.max"  # type: ignore[operator]
    assert memory.read_text().split() == [str(300 * MIB)]
    assert quota.read_text().split()[0] == "50000"
    server.order(Stop(key=of, grace_seconds=0))
    server.ended(of)


def test_200_mb_of_output_lose_no_line_and_cost_the_agent_no_memory(running: Node) -> None:
    server, agent = running
    before = _rss_kib(agent)
    ended = server.run("yes 0123456789012345678901234567890123456789012345678 | head -c 200000000")
    log = agent.data_dir / "logs" / ended.key.job_id / "1" / "worker-0.log"
    assert (ended.exit_code, log.stat().st_size) == (0, 200_000_000)
    assert _rss_kib(agent) - before < 20_000
    log.unlink()


def test_measurements_arrive_before_the_end(running: Node) -> None:
    server, _ = running
    ended = server.run("python -S -c 'while __import__(\"time\").process_time() < 0.3: pass'")
    seen = [sample for r in server.reports if r.measured for sample in r.measured.each()]
    assert any(sample.job_id == ended.key.job_id and sample.metric == "cpu_percent" for sample in seen)


def test_a_second_agent_on_the_directory_says_so_and_ends(running: Node) -> None:
    _, agent = running
    done = subprocess.run(
        [sys.executable, "-m", "trackside.agent", "--data-dir", str(agent.data_dir)],
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 3
    assert "already runs" in done.stderr.decode()


@as_root
def test_a_full_log_disk_costs_no_exit_code_and_is_said(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(logs)], check=True)
    try:
        with node(tmp_path) as (server, agent):
            ended = server.run("head -c 5000000 /dev/zero; exit 9")
            assert ended.exit_code == 9
            assert "log truncated: the disk was full" in server.notes(ended.key)
            assert len(agent.log(ended.key)) <= 1024**2
    finally:
        subprocess.run(["umount", str(logs)], check=True)


@as_root
def test_a_full_state_disk_ends_the_task_with_a_reason_and_the_agent_lives(tmp_path: Path) -> None:
    state = tmp_path / "agent"
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(state)], check=True)
    try:
        with node(tmp_path) as (server, _):
            of = server.order(launch("sleep 1; exit 6"))
            server.started(of)
            subprocess.run(["dd", "if=/dev/zero", f"of={state}/filler"], capture_output=True)
            refused = server.run("true")
            assert refused.cause is EndCause.CANNOT_START
            assert "disk" in refused.message
            assert server.ended(of).exit_code == 6
            (state / "filler").unlink()
            assert server.run("true").exit_code == 0
    finally:
        subprocess.run(["umount", str(state)], check=True)


def _rss_kib(agent: AgentProcess) -> int:
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_an_unknown_key_stopped_is_never_started(running: Node) -> None:
    server, agent = running
    order = launch("echo ran", of=key())
    server.order(Stop(key=order.key, grace_seconds=1))
    ended = server.ended(order.key)
    assert (ended.cause, ended.stopped_by_us) == (EndCause.NOT_STARTED, True)
    server.order(order)
    server.run("true")
    with pytest.raises(FileNotFoundError):
        agent.log(order.key)


def _with_output(command: str, name: str) -> Launch:
    outputs = (Channel(name="out", url=f"obs://bucket/{name}/", access=Access.ENV),)
    return launch(command, outputs=outputs, log_export_url=f"obs://bucket/{name}-logs/")


def test_outputs_and_log_are_stored_before_the_end_is_told(running: Node) -> None:
    server, agent = running
    ended = server.ended(server.order(_with_output("echo hi; echo result > $out/model; exit 3", "quick")))
    assert (ended.exit_code, ended.message) == (3, "")
    bucket = agent.data_dir / "obs" / "bucket"
    assert (bucket / "quick" / "model").read_text() == "result\n"
    assert (bucket / "quick-logs" / "worker-0.log").read_text() == "hi\n"


def test_outputs_that_cannot_be_stored_are_told(running: Node) -> None:
    server, agent = running
    (agent.data_dir / "obs" / "bucket").mkdir(exist_ok=True)
    (agent.data_dir / "obs" / "bucket" / "blocked").write_text("a file where a directory must be")
    ended = server.ended(server.order(_with_output("echo result > $out/model", "blocked")))
    assert ended.exit_code == 0
    assert "blocked" in ended.message
    assert ended.message in server.notes(ended.key)
