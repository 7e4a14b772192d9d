"""The steps around a task that no real node shows on demand: slow staging, a forker out of reach."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trackside.agent import record
from trackside.agent.cgroup import Bases, Cgroups
from trackside.agent.control import stop_agent
from trackside.agent.errands import Errands
from trackside.agent.kernel_log import KernelLog
from trackside.agent.launcher import Launcher
from trackside.agent.layout import Layout
from trackside.agent.loop import Loop
from trackside.agent.plan import Node
from trackside.agent.sandbox import Identity
from trackside.agent.stage import Staged, StagingError
from trackside.agent.state import TaskFiles
from trackside.agent.task import Tools
from trackside.agent.tasks import Tasks
from trackside.collect.probe import ExitTotals, TaskProbe
from trackside.domain.evidence import DeviceFault, Evidence
from trackside.domain.exchange import EndCause, Ended, Launch, Orders, Report, Stop, TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.resources import Capacity, Resources

KEY = TaskKey(JobId("job"), 1, TaskName("worker-0"))


class Nothing:
    """Neither outputs nor meters."""

    def begin(self, launch: Launch, staged: Staged) -> None:
        pass

    def finish(self, launch: Launch) -> str | None:
        return None

    def add(self, probe: TaskProbe) -> None:
        pass

    def missed(self, probe: TaskProbe) -> None:
        pass

    def faults(self, key: TaskKey) -> tuple[DeviceFault, ...]:
        return ()

    def remove(self, key: TaskKey, at_ms: int, totals: ExitTotals | None) -> tuple[Report, ...]:
        return ()


class Bench:
    """Tasks on a real loop that runs until an end is told."""

    def __init__(self, data_dir: Path, stage: Callable[[Launch], Staged]) -> None:
        self.layout = Layout(data_dir)
        self.loop = Loop()
        self.reports: list[Report] = []
        self.movers = ThreadPoolExecutor(2)
        self.launcher = Launcher(self.layout.agent_dir)
        who = Identity("me", os.geteuid(), os.getegid(), drop=False)
        has = Capacity(cpu_cores=1, memory_bytes=1 << 30)
        self.tasks = Tasks(
            Tools(
                node=Node(layout=self.layout, who=who, capacity=has, environment={"PATH": "/bin:/usr/bin"}),
                ip="127.0.0.1",
                loop=self.loop,
                launcher=self.launcher,
                cgroups=Cgroups(Bases()),
                movers=self.movers,
                cleaners=self.movers,
                report=self._report,
                stage=stage,
                outputs=Nothing(),
                meters=Nothing(),
                kernel=KernelLog("/nowhere"),
            ),
            Errands(
                loop=self.loop,
                workers=self.movers,
                menders=self.movers,
                report=self._report,
                handlers={},
            ),
        )

    def _report(self, *reports: Report) -> None:
        self.reports += reports
        if any(report.ended for report in reports):
            self.loop.stop()

    def ended(self) -> Ended:
        self.loop.call_later(20, self.loop.stop)
        self.loop.run()
        self.loop._ending = False
        return next(report.ended for report in reversed(self.reports) if report.ended is not None)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Callable[[Launch], Staged]], Bench]]:
    (tmp_path / "agent" / "tasks").mkdir(parents=True)
    made: list[Bench] = []

    def make(stage: Callable[[Launch], Staged]) -> Bench:
        made.append(Bench(tmp_path, stage))
        return made[0]

    yield make
    stop_agent(tmp_path, with_tasks=True)
    for one in made:
        one.movers.shutdown()
        one.loop.close()
        if one.launcher._process is not None:
            one.launcher._process.wait(10)


def _launch(**fields: object) -> Launch:
    base: dict[str, object] = {
        "key": KEY,
        "shell_command": "exit 5",
        "boot_file": None,
        "resources": Resources(cpu_cores=1, memory_bytes=1 << 28),
        "grace_seconds": 1.0,
    }
    return Launch(**{**base, **fields})  # type: ignore[arg-type]


def _never(launch: Launch) -> Staged:
    raise AssertionError(f"nothing to stage for {launch.key}")


def test_a_stop_does_not_wait_for_a_slow_download(bench: Callable[..., Bench]) -> None:
    may_go_on = threading.Event()
    left_behind = []

    def slow(launch: Launch) -> Staged:
        assert may_go_on.wait(20)
        left_behind.append(node.layout.work_dir(KEY) / "late")
        left_behind[0].write_text("fetched")
        raise StagingError("too late to matter")

    node = bench(slow)
    node.tasks.take(Orders(version=1, launch=(_launch(code_url="obs://b/c/"),)))
    node.tasks.take(Orders(version=2, stop=(Stop(key=KEY, grace_seconds=1),)))
    assert node.ended().cause is EndCause.NOT_STARTED
    node.tasks.forget([KEY])
    may_go_on.set()
    node.loop.call_later(0.2, node.loop.stop)
    node.ended()
    node.movers.shutdown(wait=True)
    assert left_behind
    assert not left_behind[0].exists()
    assert not node.layout.state_dir(KEY).exists()


def test_an_unexpected_failure_of_staging_ends_the_task(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    node = bench(_never)
    node.tasks.take(Orders(version=1, launch=(_launch(code_url="obs://b/c/"),)))
    ended = node.ended()
    assert (ended.cause, "unexpected" in ended.message) == (EndCause.STAGING_FAILED, True)
    assert "nothing to stage" in caplog.text


def test_a_forker_whose_socket_is_gone_is_replaced(bench: Callable[..., Bench]) -> None:
    node = bench(_never)
    node.launcher.warm_up()
    first = _held(node)
    (node.layout.agent_dir / "forker.sock").unlink()
    node.tasks.take(Orders(version=1, launch=(_launch(),)))
    assert node.ended().exit_code == 5
    assert _held(node) != first


def test_a_name_that_climbs_is_refused_and_touches_no_file(bench: Callable[..., Bench]) -> None:
    node = bench(_never)
    node.tasks.take(
        Orders(version=1, launch=(_launch(key=TaskKey(JobId("../.."), 1, TaskName("worker-0"))),))
    )
    assert node.ended().cause is EndCause.CANNOT_START
    assert [path.name for path in node.layout.agent_dir.iterdir()] == ["tasks"]


def _held(node: Bench) -> int:
    while (pid := record.lock_holder(str(node.layout.agent_dir / "forker.lock"))) is None:
        pass
    return pid


def test_what_a_shim_of_an_earlier_version_left_is_understood(bench: Callable[..., Bench]) -> None:
    here = bench(_never)
    files = TaskFiles(here.layout.state_dir(KEY))
    files.save_order(_launch())
    (files.directory / record.SHIM).write_text("")
    left = {
        "cause": "exited",
        "message": "",
        "exit_code": 3,
        "signal": None,
        "at_ms": 1_000,
        "ended_boot_ms": 900,
        "duration_ms": 50,
        "cpu_seconds": 0.1,
        "max_rss_bytes": 1,
        "read_bytes": None,
        "write_bytes": None,
        "stop_asked": False,
        "oom_kills": 0,
        "memory_peak_bytes": None,
    }
    record.overwrite(str(files.directory / record.EXIT), left)
    here.tasks.adopt(set())
    ended = next(report.ended for report in here.reports if report.ended is not None)
    assert (ended.exit_code, ended.ended_boot_ms) == (3, 900)
    assert ended.evidence == Evidence()
