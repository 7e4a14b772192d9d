"""Orders of a newer server, as bytes: what is understood is taken, and the rest can be answered."""

import json
from typing import Any

import msgspec
import pytest

from trackside.agent.orders import Unread, read_orders
from trackside.domain.exchange import Errand, ErrandKind, TaskKey
from trackside.domain.job import JobId, TaskName

KEY = {"job_id": "job", "attempt": 1, "task": "worker-0"}
STOP = {"key": KEY, "grace_seconds": 1.0}
LAUNCH = {
    "key": KEY,
    "shell_command": "true",
    "boot_file": None,
    "resources": {"cpu_cores": 1.0, "memory_bytes": 1024},
    "grace_seconds": 30.0,
}
THE_KEY = TaskKey(JobId("job"), 1, TaskName("worker-0"))


def orders(**parts: Any) -> bytes:
    return json.dumps({"version": 7, "drills": [{"a": 1}], **parts}).encode()


def test_what_is_understood_needs_no_second_look() -> None:
    found, unread = read_orders(orders(launch=[{**LAUNCH, "colour": "red"}], stop=[STOP]))
    assert (found.version, len(found.launch), len(found.stop), unread) == (7, 1, 1, Unread())


def test_a_kind_only_a_newer_version_knows_is_handed_on_by_its_name() -> None:
    errand = {"id": "a", "key": KEY, "kind": "profile", "seconds": 5, "depth": 3}
    found, unread = read_orders(orders(launch=[LAUNCH], errands=[errand]))
    assert [one.kind for one in found.errands] == ["profile"]
    assert (len(found.launch), unread) == (1, Unread())


def test_an_errand_that_is_not_understood_is_not_done_and_holds_up_nothing() -> None:
    known = {"id": "a", "key": KEY, "kind": "freeze", "seconds": 5}
    strange = {"id": "b", "key": KEY, "kind": "freeze", "seconds": {"least": 5}}
    found, unread = read_orders(orders(launch=[LAUNCH], stop=[STOP], errands=[strange, known]))
    assert [one.id for one in found.errands] == ["a"]
    assert (len(found.launch), len(found.stop)) == (1, 1)
    assert unread == Unread(errands=(Errand(id="b", key=THE_KEY, kind=ErrandKind.FREEZE),))


def test_a_launch_that_is_not_understood_holds_up_no_other() -> None:
    other = {**LAUNCH, "key": {**KEY, "task": "worker-1"}}
    strange = {**LAUNCH, "resources": {"cpu_cores": 1.0, "memory_bytes": 1024, "accelerator": "tpu"}}
    found, unread = read_orders(orders(launch=[strange, other]))
    assert [one.key.task for one in found.launch] == ["worker-1"]
    assert unread == Unread(launches=(THE_KEY,))


def test_what_cannot_even_be_answered_holds_up_nothing_either() -> None:
    found, unread = read_orders(orders(launch=[LAUNCH, 5], errands=[{"kind": "x"}, None]))
    assert (len(found.launch), found.errands, unread) == (1, (), Unread())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": "new"}', orders(stop=[{}])])
def test_what_is_no_orders_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_orders(data)
