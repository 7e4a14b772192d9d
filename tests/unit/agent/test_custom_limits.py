"""Every limit on a job's own metrics has its event, and a source beyond one delays none of the others."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.agent.task_stand_in import EVIL_LINE, KEY, Node, TaskStandIn, name_of, until

from trackside.agent import tree
from trackside.agent.custom import PATIENCE_READINGS, SOURCES_PER_TASK_MAX
from trackside.agent.custom_sources import LOG_BYTES_MAX, TEXT_BYTES_MAX
from trackside.agent.matching import Matcher, Refused
from trackside.collect.custom import SERIES_PER_TASK_MAX
from trackside.domain.event import Level
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, MetricSource, TaskName

NEIGHBOUR = TaskKey(JobId("other"), 1, TaskName("worker-0"))

# A task whose pages are too large, too slow, or nonsense. It says its port, and opens another when told to.
PAGES = """
import http.server, sys, threading, time
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(3600)
        self.send_response(500 if self.path == "/broken" else 200)
        self.end_headers()
        size = int(self.path[1:]) if self.path[1:].isdigit() else 0
        self.wfile.write(b"<html>" if self.path == "/html" else b"loss 1" + b" " * (size - 7) + bytes([10]))
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, *_):
        pass
server = Server(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def node(task: TaskStandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr("trackside.agent.custom_sources.READ_SECONDS_MAX", 1.0)
    made = Node(task)
    yield made
    made.close()


def begin_pages(task: TaskStandIn) -> int:
    """Have the task serve pages; return its port."""
    task.end()
    main = task.begin(sys.executable, "-c", PAGES)
    assert main.stdout is not None
    return int(main.stdout.readline())


def add(node: Node, task: TaskStandIn, *sources: MetricSource, **patterns: str) -> None:
    node.loop.call(lambda: node.custom.add(task.probe(*sources, patterns=tuple(patterns.items()))))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("yes 'loss 1'", "the command sh printed more than 100 KB"),
        ("sleep 620", "the command sh took more than 1 s and was killed"),
        ("printf 'n%.0s' $(seq 101); echo ' 1'", "has a name of more than 100 printable characters"),
        ('echo \'a{a="",b="",c="",d="",e="",f="",g="",h="",i="",j="",k=""} 1\'', "has more than 10 labels"),
        ("echo loss is low", "gave no Prometheus text"),
        ("exit 3", "failed: it exited with code 3"),
    ],
    ids=["size", "time", "name", "labels", "text", "failed"],
)
def test_a_command_beyond_a_limit_is_told_of_in_an_event(
    node: Node, task: TaskStandIn, command: str, said: str
) -> None:
    add(node, task, MetricSource(command=("sh", "-c", command)), MetricSource(command=("echo", "fine 1")))
    (note,) = until(node.notes)
    assert note.startswith("custom metrics: the command sh ")
    assert said in note
    assert {report.noted.level for report in node.reports if report.noted} == {Level.WARNING}
    until(lambda: len(node.samples("custom.fine")) >= 2)


def test_series_beyond_the_limit_are_told_of_in_an_event(node: Node, task: TaskStandIn) -> None:
    (task.work / "many").write_text("".join(f'loss{{i="{i}"}} 1\n' for i in range(SERIES_PER_TASK_MAX + 1)))
    add(node, task, MetricSource(command=("cat", "many")))
    (note,) = until(node.notes)
    assert "the command cat has a series beyond the 256 that a task may have: such are left out" in note
    assert len({sample.labels for sample in node.samples("custom.loss")}) == SERIES_PER_TASK_MAX


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (str(TEXT_BYTES_MAX + 1), "gave nothing: the answer is larger than 102,400 bytes"),
        ("slow", "gave nothing: no answer within 1 s"),
        ("broken", "gave nothing: it answered with status 500"),
        ("html", "gave no Prometheus text"),
    ],
    ids=["size", "time", "status", "text"],
)
def test_a_page_beyond_a_limit_is_told_of_in_an_event(
    node: Node, task: TaskStandIn, path: str, said: str
) -> None:
    port = begin_pages(task)
    add(node, task, MetricSource(path=f"/{path}", port=port), MetricSource(path="/100", port=port))
    (note,) = until(node.notes)
    assert note.startswith(f"custom metrics: port {port} (custom_metrics[0]) {said}")
    until(lambda: len(node.samples("custom.loss")) >= 2)


def test_a_page_of_the_largest_size_is_read(node: Node, task: TaskStandIn) -> None:
    add(node, task, MetricSource(path=f"/{TEXT_BYTES_MAX}", port=begin_pages(task)))
    until(lambda: node.samples("custom.loss"))
    assert node.notes() == []


def test_a_log_beyond_its_limits_is_told_of_in_events(node: Node, task: TaskStandIn) -> None:
    task.log.write_text("loss: 1\n")
    add(node, task, loss=r"loss: (\d+)", evil=r"(a+)+$", word=r"word: (\w+)")
    until(lambda: node.samples("custom.loss"))
    with task.log.open("a") as log:
        log.write("x" * (LOG_BYTES_MAX + 1) + f"\nword: low\n{EVIL_LINE}\n")
    notes = until(lambda: notes if len(notes := node.notes()) == 3 else None)
    assert any("the log grew by more than 256 KB at once" in note for note in notes)
    assert any("is searched for evil no longer: its expression needs more than 1 s" in note for note in notes)
    assert any("has no number where word is looked for" in note for note in notes)


def test_an_expression_that_takes_for_ever_holds_up_no_other_tasks_log(node: Node, task: TaskStandIn) -> None:
    task.log.write_text(f"{EVIL_LINE}\n")
    add(node, task, evil=r"(a+)+$")
    until(lambda: "trackside-match" in [name_of(pid) for pid in tree.descendants([os.getpid()])])
    log = task.layout.log_file(NEIGHBOUR)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("loss: 1\n")
    theirs = replace(task.probe(patterns=(("loss", r"loss: (\d+)"),)), key=NEIGHBOUR)
    node.loop.call(lambda: node.custom.add(theirs))
    until(lambda: node.samples("custom.loss"))
    assert node.notes() == [], "its log was read before the other came to its end"


def test_as_many_hanging_sources_as_there_may_be_delay_no_other(node: Node, task: TaskStandIn) -> None:
    port = begin_pages(task)
    hanging = [MetricSource(command=("sleep", str(630 + i))) for i in range(SOURCES_PER_TASK_MAX - 8)]
    hanging += [MetricSource(path="/slow", port=port)] * 7
    add(node, task, *hanging, MetricSource(command=("echo", "fine 1")))
    until(lambda: len(node.samples("custom.fine")) >= 2)
    assert node.notes() == [], "it was read twice before the first of the others came to its end"
    node.loop.call(lambda: node.custom.remove(KEY, 5))
    until(lambda: not tree.marked(str(KEY)))


def test_sources_that_are_called_alike_are_told_apart(node: Node, task: TaskStandIn) -> None:
    commands = ("echo fine 1", "exit 3", "exit 4")
    add(node, task, *(MetricSource(command=("sh", "-c", command)) for command in commands))
    notes = until(lambda: notes if len(notes := node.notes()) == 2 else None)
    said = "custom metrics: the command sh (custom_metrics[{0}]) failed: it exited with code {1}"
    assert sorted(notes) == [said.format(1, 3), said.format(2, 4)]


def test_what_is_not_there_yet_is_no_trouble(node: Node, task: TaskStandIn) -> None:
    """A program takes a while to open its port and to write its first numbers."""
    tries = "echo >> tries; tries=$(wc -l < tries); "
    script = tries + f"[ $tries -gt {PATIENCE_READINGS} ] && [ ! -e gone ] && echo loss 1 || exit 4"
    add(node, task, MetricSource(command=("sh", "-c", script)))
    until(lambda: node.samples("custom.loss"))
    assert node.notes() == []
    (task.work / "gone").touch()
    (note,) = until(node.notes)  # it was there before: this is told at once
    assert "it exited with code 4" in note


def test_what_never_came_is_told_at_the_end_of_a_short_task(task: TaskStandIn) -> None:
    node = Node(task, period_seconds=3600)
    try:
        add(node, task, MetricSource(path="/metrics", port=9))
        until(lambda: KEY in node.custom._sources and node.custom._sources[KEY][0].untold)
        assert node.notes() == []
        node.loop.call(lambda: node.custom.remove(KEY, 5))
        (note,) = until(node.notes)
        assert note == "custom metrics: port 9 is not open: no process of the task listens there"
    finally:
        node.close()


def test_nothing_is_started_once_the_agent_ends(task: TaskStandIn) -> None:
    matcher = Matcher(None)
    task.insider.close()
    matcher.close()
    with pytest.raises(OSError, match="shutdown"):
        task.command("echo", "loss 1").read()
    with pytest.raises(Refused):
        matcher.last("a", ["a"])
