"""Knows how the agent is put together and how it begins and ends; its tasks outlive it."""

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

import trackside
from trackside.agent import capacity, cgroup, record, sandbox
from trackside.agent.custom import CustomMetrics
from trackside.agent.deliver import Deliverer
from trackside.agent.errand_kinds import handlers
from trackside.agent.errands import Errands
from trackside.agent.kernel_log import KERNEL_LOG, KernelLog
from trackside.agent.launcher import Launcher
from trackside.agent.layout import Layout
from trackside.agent.loop import Loop
from trackside.agent.measure import Meter
from trackside.agent.plan import Node
from trackside.agent.ship import Link, Listener, Shipper
from trackside.agent.spool import Spool
from trackside.agent.stage import Staged, stage
from trackside.agent.task import Tools
from trackside.agent.tasks import Tasks
from trackside.agent.upload import Uploader
from trackside.collect.cards import CardSource
from trackside.collect.sources import card_sources
from trackside.domain.event import Level
from trackside.domain.exchange import Hello, Launch, TaskKey
from trackside.domain.job import NodeId
from trackside.domain.resources import Capacity
from trackside.objectstore import open_objects, open_s3
from trackside.ports import ObjectStore

ALREADY_RUNNING = 3  # exit code
MOVERS_MAX = 16
CLEANERS_MAX = 4
ERRANDS_AT_ONCE_MAX = 4
HOME_SECONDS = 20.0
OBJECT_STORE_FILE = "object_store.json"

_log = logging.getLogger(__name__)


class S3Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects are when they are not in the data directory; the server leaves this for its agents."""

    endpoint: str
    access_key: str
    secret_key_file: str
    region: str = "us-east-1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent; return its exit code."""
    asked = _parse(arguments)
    layout = Layout(asked.data_dir.absolute())
    for directory in (layout.data_dir, layout.agent_dir, layout.tasks_dir, layout.spool_dir, layout.logs_dir):
        directory.mkdir(mode=0o700, exist_ok=True)
    if asked.daemon:
        _leave_parent(layout.agent_dir / "agent.log")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if record.lock(str(layout.lock_file)) is None:
        sys.stderr.write(f"an agent already runs on {layout.data_dir}\n")
        return ALREADY_RUNNING
    try:
        who = sandbox.identity(asked.task_user)
    except sandbox.NoSuchUser as error:
        sys.stderr.write(f"{error}\n")
        return 2
    cards = partial(card_sources, npu_exporter_url=asked.npu_exporter, dcgm_exporter_url=asked.dcgm_exporter)
    has = capacity.detect(asked.npu_exporter)
    Agent(layout, NodeId(asked.node), who, tuple(asked.show), has, cards, asked.kernel_log).run()
    return 0


class Agent:
    """All parts of one node's agent."""

    def __init__(
        self,
        layout: Layout,
        node_id: NodeId,
        who: sandbox.Identity,
        extra_paths: tuple[Path, ...],
        has: Capacity,
        cards: Callable[[], Sequence[CardSource]],
        kernel_log: str = KERNEL_LOG,
    ) -> None:
        self._layout = layout
        self._who = who
        self._loop = Loop()
        self._spool = Spool(layout.spool_dir)
        self._objects = _objects(layout)
        ip = capacity.host_ip()
        node = Node(
            layout=layout, who=who, capacity=has, environment=dict(os.environ), extra_paths=extra_paths
        )
        self._uploader = Uploader(self._objects, note=self._note)
        owner = (who.uid, who.gid) if who.drop else None
        custom = CustomMetrics(self._loop, layout, self._spool.append, owner=owner)
        self._meter = Meter(self._loop, self._spool.append, on_tick=self._tick, cards=cards, custom=custom)
        self._launcher = Launcher(layout.agent_dir)
        self._cgroups = cgroup.Cgroups(cgroup.detect())
        self._tools = Tools(
            node=node,
            ip=ip,
            loop=self._loop,
            launcher=self._launcher,
            cgroups=self._cgroups,
            movers=ThreadPoolExecutor(MOVERS_MAX, thread_name_prefix="mover"),
            cleaners=ThreadPoolExecutor(CLEANERS_MAX, thread_name_prefix="cleaner"),
            report=self._spool.append,
            stage=self._stage,
            outputs=Deliverer(self._uploader, layout),
            meters=self._meter,
            kernel=KernelLog(kernel_log),
        )
        self._errands = Errands(
            loop=self._loop,
            workers=ThreadPoolExecutor(ERRANDS_AT_ONCE_MAX, thread_name_prefix="errand"),
            menders=ThreadPoolExecutor(ERRANDS_AT_ONCE_MAX, thread_name_prefix="mender"),
            report=self._spool.append,
            handlers=handlers(),
        )
        self._tasks = Tasks(self._tools, self._errands)
        hello = Hello(
            node_id=node_id,
            agent_pid=os.getpid(),
            host_ip=ip,
            capacity=has,
            version=trackside.__version__,
        )
        self._shipper = Shipper(self._link(), self._spool, node_id, self._acknowledged)
        self._listener = Listener(
            self._link(),
            hello,
            lambda orders, unread: self._loop.call(lambda: self._tasks.take(orders, unread)),
            lambda seconds: self._loop.call(lambda: self._meter.set_interval(seconds)),
            partial(capacity.disk, layout.data_dir),
        )

    def run(self) -> None:
        """Work until SIGTERM; leave the tasks running."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._loop.stop())
        _log.info("agent of %s, limits of memory %s", self._layout.data_dir, self._enforced())
        self._launcher.warm_up()
        self._tools.kernel.look()
        self._tasks.adopt(self._spool.pending_ends())
        self._shipper.start()
        self._listener.start()
        self._look_after_home()
        self._loop.run()
        self._meter.close()
        self._shipper.stop()
        self._listener.stop()
        self._errands.close()
        if self._tasks.any_key is None:
            self._cgroups.remove_parents()
        _log.info("agent ends; its tasks run on")

    def _look_after_home(self) -> None:
        """End when the data directory was removed: nobody can find this agent any more."""
        if not self._layout.lock_file.exists():
            _log.warning("the data directory is gone")
            self._loop.stop()
        self._loop.call_later(HOME_SECONDS, self._look_after_home)

    def _enforced(self) -> str:
        return "are enforced" if self._cgroups.bases.limits_memory else "cannot be enforced here"

    def _link(self) -> Link:
        return Link(self._layout.server_file, self._layout.token_file)

    def _stage(self, launch: Launch) -> Staged:
        owner = (self._who.uid, self._who.gid) if self._who.drop else None
        return stage(launch, task_dir=self._layout.work_dir(launch.key), objects=self._objects, owner=owner)

    def _note(self, key: TaskKey, message: str, level: Level) -> None:
        self._tools.note(key, message, level)

    def _acknowledged(self, keys: list[TaskKey]) -> None:
        self._loop.call(lambda: self._tasks.forget(keys))

    def _tick(self) -> None:
        self._tasks.check_log_disk()
        self._tools.kernel.look()
        key = self._tasks.any_key
        dropped = self._spool.take_dropped() if key is not None else 0
        if key is not None and dropped:
            self._tools.note(
                key, f"{dropped} measurements were lost: the node's disk was full", Level.WARNING
            )


def _objects(layout: Layout) -> ObjectStore:
    place = layout.agent_dir / OBJECT_STORE_FILE
    try:
        at = msgspec.json.decode(place.read_bytes(), type=S3Place)
    except FileNotFoundError:
        return open_objects(layout.data_dir / "obs")
    return open_s3(at.endpoint, at.access_key, Path(at.secret_key_file).read_text().strip(), at.region)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trackside-agent", description="Run a node's tasks.")
    parser.add_argument("--data-dir", type=Path, required=True, help="the node's data directory")
    parser.add_argument("--daemon", action="store_true", help="go on in the background, as nobody's child")
    parser.add_argument("--node", default=socket.gethostname(), help="the node's id (the host's name)")
    parser.add_argument(
        "--task-user", default=sandbox.DEFAULT_TASK_USER, help="who tasks run as, if the agent is root"
    )
    parser.add_argument("--npu-exporter", default="", metavar="URL", help="read NPUs from npu-exporter")
    parser.add_argument("--dcgm-exporter", default="", metavar="URL", help="read GPUs from dcgm-exporter too")
    parser.add_argument(
        "--kernel-log", default=KERNEL_LOG, metavar="FILE", help="where the kernel tells of kills and cards"
    )
    parser.add_argument(
        "--show", type=Path, action="append", default=[], help="a path every task must reach; repeatable"
    )
    return parser.parse_args(arguments)


def _leave_parent(log: Path) -> None:
    """Go on as nobody's child, in a session of our own, with the log as output."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    with open(log, "ab") as output, open(os.devnull, "rb") as null:
        os.chmod(log, 0o600)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source.fileno(), target)
    with contextlib.suppress(OSError):
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
