"""Real tasks to measure: a shim with a program below it that does what it is told, when it is told.

Every step is answered with a line, so tests wait for events and compare with the program's own account.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from trackside.collect.probe import CgroupDirs, ExitTotals, TaskProbe
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.metric import Sample
from trackside.domain.resources import Accelerator, Resources

MIB = 1024**2

# The parent of the task, as the product's shim is: a subreaper that waits for everything below it.
SHIM = """
import ctypes, json, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1], sys.argv[1]])
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
used = resource.getrusage(resource.RUSAGE_CHILDREN)
io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
print(json.dumps({
    "cpu_seconds": used.ru_utime + used.ru_stime,
    "max_rss_bytes": used.ru_maxrss * 1024,
    "read_bytes": int(io["read_bytes"]),
    "write_bytes": int(io["write_bytes"]),
    "ended_boot_ms": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
}), flush=True)
sys.stdin.read()
"""

# Every line is a piece of Python; its value comes back as a line of JSON. Children run the same program.
PROGRAM = """
import json, os, resource, signal, socket, subprocess, sys, tempfile, time
children, kept = {}, {}
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
def start(name, *other):
    command = other or [sys.executable, "-S", "-c", sys.argv[1], sys.argv[1]]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children[name] = child
    child.stdout.readline()
    return child.pid
def tell(name, line):
    children[name].stdin.write(line + chr(10))
    children[name].stdin.flush()
    return json.loads(children[name].stdout.readline())
def end(name):
    child = children.pop(name)
    child.stdin.close()
    child.stdout.read()
    child.stdout.close()
    child.wait()
def hold(mib):
    kept["memory"] = bytearray(os.urandom(4096)) * (mib * 256)
def write(path, mib):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for _ in range(mib):
        os.write(fd, bytes(1024 * 1024))
    os.fsync(fd)
    os.close(fd)
def read(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(fd, 1024 * 1024):
        pass
    os.close(fd)
def listen():
    kept["listener"] = socket.create_server(("127.0.0.1", 0))
    return kept["listener"].getsockname()[1]
def accept():
    kept["peer"] = kept["listener"].accept()[0]
def connect(port):
    kept["peer"] = socket.create_connection(("127.0.0.1", port))
def send(count):
    kept["peer"].sendall(bytes(count))
def receive(count):
    while count:
        count -= len(kept["peer"].recv(min(count, 65536)))
def hang_up():
    kept.pop("peer").close()
def half_a_core(seconds):
    before, end = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        burn(0.02)
        time.sleep(0.02)
    return time.process_time() - before
def short_lives(count):
    before = time.process_time() + children_cpu()
    for _ in range(count):
        life = "import time" + chr(10) + "while time.process_time() < 0.05: pass"
        subprocess.run([sys.executable, "-S", "-c", life])
    return time.process_time() + children_cpu() - before
def write_steadily(path, bytes_per_second, seconds):
    fd, piece, count = os.open(path, os.O_CREAT | os.O_WRONLY), bytes(bytes_per_second // 10), 0
    for _ in range(int(seconds * 10)):
        count += os.write(fd, piece)
        time.sleep(0.1)
    os.fsync(fd)
    os.close(fd)
    return count
def shared_file(mib):
    fd, path = tempfile.mkstemp(dir="/dev/shm")
    os.unlink(path)
    for _ in range(mib):
        os.write(fd, bytes(1024 * 1024))
    kept["shared"] = fd
def send_steadily(bytes_per_second, seconds):
    piece = bytes(bytes_per_second // 20)
    for _ in range(int(seconds * 20)):
        kept["peer"].sendall(piece)
        time.sleep(0.05)
    kept["peer"].shutdown(socket.SHUT_WR)
    return len(piece) * int(seconds * 20)
def receive_all():
    while kept["peer"].recv(65536):
        pass
def chatter(mib):
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    for _ in range(mib * 16):
        near.sendall(bytes(65536))
        left = 65536
        while left:
            left -= len(far.recv(left))
    kept["chatter"] = near, far
def noise(path, seconds):
    hold(100)
    write(path, 20)
    chatter(20)
    children = [subprocess.Popen(["sleep", str(seconds)]) for _ in range(5)]
    burn(seconds / 2)
    for child in children:
        child.wait()
print("ready", flush=True)
while line := sys.stdin.readline():
    print(json.dumps(eval(line)), flush=True)
"""


@dataclass
class Task:
    """One running task."""

    shim: subprocess.Popen[str]
    name: str = "worker-0"
    cores: float = 1.0
    memory_bytes: int = 1024 * MIB
    cgroup: CgroupDirs | None = None
    cards: tuple[int, ...] = ()
    accelerator: Accelerator = Accelerator.NONE
    samples: list[Sample] = field(default_factory=list)

    @property
    def key(self) -> TaskKey:
        return TaskKey(JobId("job"), 1, TaskName(self.name))

    @property
    def probe(self) -> TaskProbe:
        resources = Resources(
            cpu_cores=self.cores,
            memory_bytes=self.memory_bytes,
            cards=len(self.cards),
            accelerator=self.accelerator,
        )
        return TaskProbe(
            key=self.key, shim_pid=self.shim.pid, resources=resources, cards=self.cards, cgroup=self.cgroup
        )

    def do(self, line: str) -> Any:
        """Let the program evaluate a line of Python and return its value."""
        self.ask(line)
        return self.answer()

    def ask(self, line: str) -> None:
        """Let the program begin to evaluate a line of Python."""
        assert self.shim.stdin is not None
        self.shim.stdin.write(line + "\n")
        self.shim.stdin.flush()

    def answered(self) -> bool:
        """Say whether the program is done with what it was asked."""
        return bool(select.select([self.shim.stdout], [], [], 0)[0])

    def answer(self) -> Any:
        """Wait for the value of what was asked."""
        return json.loads(self._answer())

    def finish(self) -> ExitTotals:
        """Let the program end and return what the shim counted."""
        assert self.shim.stdin is not None
        self.shim.stdin.write("sys.exit()\n")
        self.shim.stdin.flush()
        return ExitTotals(**json.loads(self._answer()))

    def _answer(self) -> str:
        assert self.shim.stdout is not None
        answer = self.shim.stdout.readline()
        assert answer, "the program died"
        return answer


@contextmanager
def task(name: str = "worker-0", *, cgroup: CgroupDirs | None = None, **given: Any) -> Iterator[Task]:
    """Start a task, in cgroups if given, and end it with all its processes."""

    def enter() -> None:
        for place in (cgroup.memory, cgroup.cpuacct, cgroup.pids, cgroup.unified) if cgroup else ():
            if place is not None:
                (place / "cgroup.procs").write_text(str(os.getpid()))

    shim = subprocess.Popen(
        [sys.executable, "-S", "-c", SHIM, PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=enter,
        start_new_session=True,
    )
    try:
        assert shim.stdout is not None
        assert shim.stdout.readline() == "ready\n"
        yield Task(shim, name, cgroup=cgroup, **given)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shim.pid, signal.SIGKILL)
        shim.communicate()


class Clock:
    """A boot clock that stands still until a test lets time pass."""

    def __init__(self) -> None:
        self._now_ms = boot_ms()

    def __call__(self) -> int:
        return self._now_ms

    def skip_to(self, at_ms: int) -> None:
        """Let time pass until then, at once."""
        self._now_ms = max(self._now_ms, at_ms)

    def catch_up(self) -> None:
        """Let it be what the machine's clock says, so that a task just started is just born."""
        self.skip_to(boot_ms())


def next_pass(sensors: Sensors, clock: Clock) -> list[Sample]:
    """Read until a pass ships something, each time at the moment the sensors ask for."""
    for _ in range(20):
        clock.skip_to(sensors.next_read_ms())
        samples = sensors.read(clock())
        if samples:
            return samples
    raise AssertionError("nothing was shipped")


def one(samples: list[Sample], metric: str, task: str = "worker-0", card: int | None = None) -> Sample:
    """Return the only such sample."""
    (found,) = [s for s in samples if (s.metric, s.task, s.card) == (metric, task, card)]
    return found


def used(samples: list[Sample], metric: str, began_ms: int, task: str = "worker-0") -> float:
    """Return what rates amount to: each times the seconds since the one before it."""
    total, before_ms = 0.0, began_ms
    for sample in sorted((s for s in samples if (s.metric, s.task) == (metric, task)), key=lambda s: s.at_ms):
        total += sample.value * (sample.at_ms - before_ms) / 1000
        before_ms = sample.at_ms
    return total
