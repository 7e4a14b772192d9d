"""Lines as kernels wrote them: kills for memory, of a group or of the whole machine, and errors of cards."""

import logging
import os
import time
from pathlib import Path

import pytest

from trackside.agent.evidence import gpu_addresses, host_oom, xid_faults
from trackside.agent.kernel_log import KERNEL_LOG, KernelLog, OomKill, Xid, parse

KEY = "e97f0393-67f7-40c6-a2a6-5ae22e02c0ee.1.worker-0"
GROUP = f"/trackside/{KEY}"
IN_GROUP = f"/system.slice/trackside.service{GROUP}"
MEMCG = (
    f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={IN_GROUP},"
    f"task_memcg={IN_GROUP},task=python,pid=4866,uid=65534"
)
ABOVE = MEMCG.replace(f"oom_memcg={IN_GROUP}", "oom_memcg=/system.slice/trackside.service")
GLOBAL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg={IN_GROUP},task=python,pid=4866,uid=65534"
)
OLD_GLOBAL = "Out of memory: Kill process 4866 (python) score 905 or sacrifice child"
OLD_MEMCG = "Memory cgroup out of memory: Kill process 4866 (python) score 905 or sacrifice child"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4866, name=python, GPU has fallen off the bus."
XID_OLD = "NVRM: Xid (PCI:0000:D8:00): 31, Ch 00000010, engmask 00000101, intr 10000000"


@pytest.mark.parametrize(
    ("line", "host"),
    [(MEMCG, False), (ABOVE, True), (GLOBAL, True), (OLD_GLOBAL, True), (OLD_MEMCG, False)],
)
def test_the_machine_s_want_of_memory_is_told_from_the_task_s_own(line: str, host: bool) -> None:
    fact = parse(line, 5)
    assert isinstance(fact, OomKill)
    assert (fact.boot_ms, fact.pid) == (5, 4866)
    assert host_oom([fact], group=GROUP, pid=4866) == (line if host else None)


@pytest.mark.parametrize("line", [GLOBAL, ABOVE])
def test_kills_of_others_are_not_ours(line: str) -> None:
    other = GROUP.replace("worker-0", "worker-01")
    assert host_oom([parse(line, 5)], group=other, pid=99) is None
    assert host_oom([parse(line, 5)], group="/trackside/other", pid=4866) is None, "a pid is used again"
    assert host_oom([parse(OLD_GLOBAL, 5)], group=GROUP, pid=99) is None


def test_a_kill_in_a_group_below_the_task_s_is_ours() -> None:
    below = GLOBAL.replace(IN_GROUP, f"{IN_GROUP}/mine")
    assert host_oom([parse(below, 5)], group=GROUP, pid=None) == below


def test_errors_of_cards_are_read() -> None:
    text = "pid=4866, name=python, GPU has fallen off the bus."
    assert parse(XID, 7) == Xid(7, "0000:3b:00", 79, 4866, text)
    old = parse(XID_OLD, 8)
    assert isinstance(old, Xid)
    assert (old.address, old.xid, old.pid) == ("0000:d8:00", 31, None)
    assert parse("usb 1-1: new high-speed USB device number 2", 9) is None


def test_errors_belong_to_the_card_at_that_address(tmp_path: Path) -> None:
    for name in ("0000:3b:00.0", "0000:18:00.0", "0000:d8:00.0"):
        (tmp_path / name).mkdir()
    addresses = gpu_addresses(str(tmp_path))
    assert addresses == {"0000:18:00": 0, "0000:3b:00": 1, "0000:d8:00": 2}
    xids = [fact for fact in (parse(XID, 1), parse(XID_OLD, 2)) if isinstance(fact, Xid)]
    (mine,) = xid_faults(xids, cards=(0, 1), pid=1, addresses=addresses)
    assert (mine.card, mine.code, mine.heals) == (1, "XID 79", False)
    (heals,) = xid_faults(xids, cards=(2,), pid=1, addresses=addresses)
    assert (heals.card, heals.code, heals.heals) == (2, "XID 31", True)


def test_without_addresses_only_a_task_s_single_card_is_sure() -> None:
    assert gpu_addresses("/nowhere") == {}
    xids = [fact for fact in (parse(XID, 1),) if isinstance(fact, Xid)]
    assert [one.card for one in xid_faults(xids, cards=(3,), pid=4866, addresses={})] == [3]
    assert xid_faults(xids, cards=(3, 4), pid=4866, addresses={}) == []
    assert xid_faults(xids, cards=(3,), pid=1, addresses={}) == []


def record(text: str, us: int) -> bytes:
    return f"6,1042,{us},-;{text}\n SUBSYSTEM=oom\n".encode()


def test_lines_are_read_as_they_come_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    path.write_bytes(record("booting", 1) + record(GLOBAL, now_us - 60_000_000))
    log = KernelLog(str(path))
    log.look()
    assert len(list(log.facts(0, 1 << 60))) == 1
    began_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    log.look()
    with path.open("ab") as file:
        file.write(record(XID, 5)[:30])
        file.flush()
        log.look()
        file.write(record(XID, 5)[30:])
    log.look()
    (news,) = log.facts(began_ms, 1 << 60)
    assert isinstance(news, Xid), "said after the last look, whatever its clock says"
    assert list(log.facts(0, began_ms - 120_000)) == []
    log.close()
    log.look()


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "nothing"))
    log.look()
    assert list(log.facts(0, 1 << 60)) == []
    log.close()


def test_the_real_log_is_read_without_waiting(caplog: pytest.LogCaptureFixture) -> None:
    try:
        os.close(os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        pytest.skip("the kernel's log may not be read here")
    caplog.set_level(logging.INFO)
    log = KernelLog()
    log.look()
    log.look()  # there is little or nothing new, and it comes back all the same
    now_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert log.facts(0, now_ms) == log.facts(0, 1 << 60), "nothing is told of the future"
    log.close()
    assert caplog.messages == [], "it was opened, and every read went well"
