"""Processes are found by their parents and by the mark in their environment."""

import os
import signal
import subprocess
import sys
import uuid

from trackside.agent import tree


def _sleeper(script: str, **environment: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_descendants_are_found_and_killed() -> None:
    with _sleeper("sleep 1000 & sleep 1000 & echo up; wait") as process:
        found = tree.descendants([process.pid])
        assert len(found) == 2
        assert tree.freeze_and_kill(lambda: tree.descendants([process.pid])) == found
        assert process.wait(10) == 0
        assert tree.descendants([process.pid]) == set()


def test_the_mark_finds_processes_whoever_their_parent_is() -> None:
    key = str(uuid.uuid4())
    with _sleeper("(setsid sleep 1000 &); echo up; exec sleep 1000", **{tree.KEY_VARIABLE: key}) as process:
        found = tree.marked(key)
        assert process.pid in found
        assert len(found) == 2
        assert tree.marked(key[:-1]) == set()
        tree.send(found, signal.SIGKILL)


def test_zombies_and_the_dead_do_not_count() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.pid not in tree.parents()
    assert tree.start_ticks(process.pid) is not None
    process.wait()
    assert tree.start_ticks(process.pid) is None
    tree.send([process.pid], signal.SIGKILL)


def test_start_ticks_tell_processes_apart() -> None:
    assert tree.start_ticks(os.getpid()) == tree.start_ticks(os.getpid())
    assert tree.start_ticks(1) != tree.start_ticks(os.getpid())
    assert len(tree.boot_id()) == 36
