"""Real commands, ports and logs of a process that stands in for a task's, read by the real readers."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.requirements import missing
from tests.unit.agent.task_stand_in import DEADLINE_SECONDS, EVIL_LINE, KEY, Node, TaskStandIn, name_of, until
from tests.unit.collect.exporter import exporter

from trackside.agent import tree
from trackside.agent.custom_sources import (
    LOG_BYTES_MAX,
    LogReader,
    PortReader,
    SourceFailed,
    TaskIsOver,
    listens,
)
from trackside.agent.matching import Matcher, Refused, find_last
from trackside.domain.job import MetricSource
from trackside.domain.metric import Sample

# A task's main process that serves one page on a port of its own, and says which.
SERVING = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served 4" + bytes([10]))
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def matcher() -> Iterator[Matcher]:
    made = Matcher(None)
    yield made
    made.close()


def numbers(samples: list[Sample]) -> dict[str, float]:
    return {sample.metric: sample.value for sample in samples}


# --- commands


def test_a_command_has_the_tasks_environment_and_directory(task: TaskStandIn) -> None:
    (task.work / "numbers").write_text("loss 0.5\n")
    script = 'cat numbers; test "$JOBS_OWN" = yes && echo own 1; echo noise >&2; echo env $(env | wc -l)'
    found = numbers(task.command("sh", "-c", script).read().samples)
    assert found["custom.loss"] == 0.5
    assert found["custom.own"] == 1.0
    assert found["custom.env"] < 8  # nothing of ours


@pytest.mark.parametrize(
    ("command", "kind", "said"),
    [
        (("sh", "-c", "exit 3"), "failed", "it exited with code 3"),
        (("sh", "-c", "kill -9 $$"), "failed", "signal 9"),
        (("/no/such/program",), "failed", "no such file: /no/such/program"),
        (("sh", "-c", "yes 'loss 1'"), "size", "more than 100 KB"),
        (("echo", "loss is low"), "text", "no Prometheus text"),
    ],
    ids=["exit", "signal", "absent", "flood", "nonsense"],
)
def test_a_command_that_fails_says_how(
    task: TaskStandIn, command: tuple[str, ...], kind: str, said: str
) -> None:
    with pytest.raises(SourceFailed) as caught:
        task.command(*command).read()
    assert caught.value.problem.kind == kind
    assert said in caught.value.problem.text
    assert tree.marked(str(KEY)) == set()


def test_a_command_that_hangs_is_killed_with_all_its_children(
    task: TaskStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trackside.agent.custom_sources.READ_SECONDS_MAX", 0.5)
    script = "setsid sh -c 'trap \"\" TERM; sleep 601 & sleep 602' & echo $! > pid; sleep 603"
    with pytest.raises(SourceFailed) as caught:
        task.command("sh", "-c", script).read()
    assert caught.value.problem.kind == "time"
    assert (task.work / "pid").read_text().strip().isdigit()
    assert tree.marked(str(KEY)) == set()


def test_what_a_command_leaves_running_ends_with_it(task: TaskStandIn) -> None:
    read = task.command("sh", "-c", "sleep 604 & setsid sleep 605 & echo loss 1").read()
    assert numbers(read.samples) == {"custom.loss": 1.0}
    assert tree.marked(str(KEY)) == set()


def test_a_reading_is_given_up_when_the_task_ends(task: TaskStandIn) -> None:
    reader = task.command("sleep", "606")
    caught: list[BaseException] = []

    def read() -> None:
        try:
            reader.read()
        except TaskIsOver as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: tree.marked(str(KEY)))
    reader.cancel()
    thread.join(DEADLINE_SECONDS)
    assert len(caught) == 1
    assert tree.marked(str(KEY)) == set()
    with pytest.raises(TaskIsOver):
        reader.read()


def test_without_its_main_process_there_is_no_task_to_read(task: TaskStandIn) -> None:
    task.end()
    with pytest.raises(TaskIsOver):
        task.command("echo", "loss 1").read()


def test_the_process_that_runs_commands_is_brought_up_again(task: TaskStandIn) -> None:
    assert task.command("echo", "loss 1").read().samples
    children = [pid for pid, parent in tree.parents().items() if parent == os.getpid()]
    (helper,) = [pid for pid in children if name_of(pid) == "trackside-look"]
    os.kill(helper, signal.SIGKILL)
    until(lambda: name_of(helper) != "trackside-look")
    assert task.command("echo", "loss 1").read().samples


# --- ports


def test_a_page_on_the_tasks_port_is_read(task: TaskStandIn) -> None:
    task.end()
    main = task.begin(sys.executable, "-c", SERVING)
    assert main.stdout is not None
    port = int(main.stdout.readline())
    reader = PortReader("/metrics", port, os.getpid(), task.files, task.series)
    assert numbers(reader.read().samples) == {"custom.served": 4.0}
    assert listens(main.pid, os.getpid(), port)


def test_a_neighbours_port_is_not_the_tasks(task: TaskStandIn) -> None:
    with exporter("theirs 1\n") as theirs:
        reader = PortReader("/metrics", theirs.port, task_shim(task), task.files, task.series)
        with pytest.raises(SourceFailed, match="no process of the task listens"):
            reader.read()
        assert theirs.asked == 0


def task_shim(task: TaskStandIn) -> int:
    """Stand in for a shim that has nobody of ours below it."""
    assert task.main is not None
    return task.main.pid


def test_a_port_in_a_network_of_its_own_is_read_from_within(task: TaskStandIn) -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        missing("the right to make network namespaces")
    task.end()
    up = "import fcntl, socket, struct; s = socket.socket(); "
    up += "fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 1)); s.close()"
    main = task.begin("unshare", "-n", sys.executable, "-c", f"{up}\n{SERVING}")
    assert main.stdout is not None
    port = int(main.stdout.readline())
    reader = PortReader("metrics", port, os.getpid(), task.files, task.series)
    before = os.stat("/proc/thread-self/ns/net").st_ino
    assert numbers(reader.read().samples) == {"custom.served": 4.0}
    assert os.stat("/proc/thread-self/ns/net").st_ino == before


# --- logs


def log_reader(task: TaskStandIn, matcher: Matcher, **patterns: str) -> LogReader:
    return LogReader(tuple(patterns.items()), task.log, matcher, task.series)


def test_the_newest_number_of_new_whole_lines_is_taken(task: TaskStandIn, matcher: Matcher) -> None:
    reader = log_reader(task, matcher, loss=r"loss: ([0-9.]+)", acc=r"(?<=acc=)\S+")
    assert reader.read().samples == []  # there is no log yet
    task.log.write_text("loss: 3\nloss: 2 loss: 1.5\racc=0.25\nloss: 9")
    assert numbers(reader.read().samples) == {"custom.loss": 1.5, "custom.acc": 0.25}
    assert reader.read().samples == []
    with task.log.open("a") as log:
        log.write("9\n")
    assert numbers(reader.read().samples) == {"custom.loss": 99.0}
    with task.log.open("a") as log:
        log.write("loss: 7")
    assert reader.read().samples == []
    (last,) = reader.read(1234).samples  # the task is over: what it printed is whole
    assert (last.value, last.at_ms) == (7.0, 1234)


def test_what_is_found_and_no_number_is_said(task: TaskStandIn, matcher: Matcher) -> None:
    task.log.write_text("loss: low\n")
    read = log_reader(task, matcher, loss=r"loss: (\w+)").read()
    assert read.samples == []
    assert [problem.kind for problem in read.problems] == ["number loss"]


def test_a_flood_is_searched_at_its_end_only(task: TaskStandIn, matcher: Matcher) -> None:
    reader = log_reader(task, matcher, loss=r"loss: (\d+)")
    task.log.write_text("loss: 1\n")
    reader.read()
    with task.log.open("a") as log:
        log.write("loss: 2\n" + "x" * (LOG_BYTES_MAX + 10) + "\n")
    read = reader.read()
    assert read.samples == []
    assert [problem.kind for problem in read.problems] == ["size"]


def test_an_expression_that_takes_for_ever_is_stopped_and_the_others_go_on(
    task: TaskStandIn, matcher: Matcher
) -> None:
    reader = log_reader(task, matcher, evil=r"(a+)+$", loss=r"loss: (\d+)")
    task.log.write_text(f"{EVIL_LINE}\nloss: 5\n{EVIL_LINE}\n")
    read = reader.read()
    assert numbers(read.samples) == {"custom.loss": 5.0}
    assert [problem.kind for problem in read.problems] == ["pattern evil"]
    with task.log.open("a") as log:
        log.write(f"{EVIL_LINE}\nloss: 6\n")
    read = reader.read()
    assert (numbers(read.samples), read.problems) == ({"custom.loss": 6.0}, [])


def test_the_matcher_outlives_its_process(matcher: Matcher) -> None:
    assert matcher.last("(b)", ["abc"]) == "b"
    with pytest.raises(Refused, match="more than 1 s"):
        matcher.last("(a+)+$", [EVIL_LINE])
    with pytest.raises(Refused, match="not a regular one"):
        matcher.last("(", ["abc"])
    assert matcher.last("c$", ["abc"]) == "c"
    assert matcher.last("x", ["abc"]) is None


def test_the_last_match_of_the_last_line_counts() -> None:
    assert find_last(r"(\d)", ["1 2", "3 4", "none"]) == "4"
    assert find_last(r"(x)?\d", ["7"]) is None


# --- all together


@pytest.fixture
def node(task: TaskStandIn) -> Iterator[Node]:
    made = Node(task)
    yield made
    made.close()


def test_every_source_is_read_again_and_again_and_a_hanging_one_delays_none(
    node: Node, task: TaskStandIn
) -> None:
    sources = [MetricSource(command=("sleep", str(610 + i))) for i in range(3)]
    sources += [MetricSource(command=("sh", "-c", "echo loss 1")), MetricSource(command=("false",))]
    sources += [MetricSource(path="/metrics", port=9)]
    node.loop.call(lambda: node.custom.add(task.probe(*sources)))
    until(lambda: len(node.samples("custom.loss")) >= 4)
    told = until(lambda: notes if len(notes := node.notes()) >= 2 else None)
    until(lambda: len(node.samples("custom.loss")) >= 8)
    assert sorted(node.notes()) == sorted(told)  # each trouble once, not every period
    assert sum("false failed: it exited with code 1" in note for note in told) == 1
    assert sum("port 9 is not open" in note for note in told) == 1
    node.loop.call(lambda: node.custom.remove(KEY, 5))
    until(lambda: not tree.marked(str(KEY)))


def test_what_was_printed_last_is_found_after_the_end(node: Node, task: TaskStandIn) -> None:
    patterns = (("loss", r"loss: (\S+)"),)
    node.loop.call(lambda: node.custom.add(task.probe(patterns=patterns)))
    task.log.write_text("loss: 1\n")
    until(lambda: node.samples("custom.loss"))
    with task.log.open("a") as log:
        log.write("loss: 0.125")
    node.loop.call(lambda: node.custom.remove(KEY, 4321))
    last = until(lambda: [s for s in node.samples("custom.loss") if s.at_ms == 4321])
    assert [sample.value for sample in last] == [0.125]


def test_a_task_without_metrics_of_its_own_costs_nothing(node: Node, task: TaskStandIn) -> None:
    node.loop.call(lambda: node.custom.add(task.probe()))
    node.loop.call(lambda: node.custom.remove(KEY, 1))
    assert node.reports == []
