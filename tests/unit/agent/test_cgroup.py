"""Control groups of all three worlds, on directories that imitate the kernel's files."""

import os
from pathlib import Path

import pytest

from trackside.agent import cgroup
from trackside.agent.cgroup import Bases, Cgroups
from trackside.collect.probe import CgroupDirs
from trackside.domain.resources import Resources

SIZE = Resources(cpu_cores=1.5, memory_bytes=1 << 30)


def _proc(tmp_path: Path, groups: str, mounts: list[str]) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    (proc / "mountinfo").write_text("".join(f"30 1 0:20 {line}\n" for line in mounts))
    return proc


def _v2(path: Path, controllers: str, handed_down: str) -> Path:
    path.mkdir(parents=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(handed_down)
    return path


def test_v2_alone_uses_our_own_group_if_it_can_hand_controllers_down(tmp_path: Path) -> None:
    top = _v2(tmp_path / "fs", "cpu memory pids", "cpu memory pids")
    own = _v2(top / "agent.service", "cpu memory pids", "cpu memory pids")
    proc = _proc(tmp_path, "0::/agent.service\n", [f"/ {top} rw - cgroup2 cgroup2 rw"])
    found = cgroup.detect(proc)
    assert (found.unified, found.v1, found.limits_memory) == (own, {}, True)


def test_v2_falls_back_to_the_top_where_our_own_cannot_hold_children(tmp_path: Path) -> None:
    top = _v2(tmp_path / "fs", "cpu memory pids", "cpu memory pids")
    own = _v2(top / "session.scope", "", "")  # the kernel refuses: it has processes of its own
    proc = _proc(tmp_path, "0::/session.scope\n", [f"/ {top} rw - cgroup2 cgroup2 rw"])
    assert cgroup.detect(proc).unified == top
    assert own.exists()


def test_a_path_that_the_mount_does_not_show_falls_back_to_its_top(tmp_path: Path) -> None:
    top = _v2(tmp_path / "fs", "memory", "memory")
    proc = _proc(tmp_path, "0::/\n", [f"/docker/1234 {top} rw - cgroup2 cgroup2 rw"])
    assert cgroup.detect(proc).unified == top


def test_hybrid_takes_limits_from_v1_and_killing_from_v2(tmp_path: Path) -> None:
    for name in ("memory", "cpu,cpuacct", "pids", "unified"):
        (tmp_path / "fs" / name).mkdir(parents=True)
    _v2(tmp_path / "fs" / "unified" / "x", "", "")
    fs = tmp_path / "fs"
    proc = _proc(
        tmp_path,
        "4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n1:freezer:/\n0::/x\n",
        [
            f"/ {fs}/memory rw - cgroup cgroup rw,memory",
            f"/ {fs}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
            f"/ {fs}/pids rw - cgroup cgroup rw,pids",
            f"/ {fs}/unified rw - cgroup2 cgroup2 rw",
        ],
    )
    found = cgroup.detect(proc)
    assert found.v1 == {
        "memory": fs / "memory",
        "cpu": fs / "cpu,cpuacct",
        "cpuacct": fs / "cpu,cpuacct",
        "pids": fs / "pids",
    }
    assert (found.unified, found.unified_controllers) == (fs / "unified" / "x", frozenset())
    dirs = Cgroups(found).create("k", SIZE)
    assert dirs is not None
    assert cgroup.joins(dirs) == [
        str(fs / "memory/trackside/k/tasks"),
        str(fs / "cpu,cpuacct/trackside/k/tasks"),
        str(fs / "pids/trackside/k/tasks"),
    ]
    Cgroups(found).remove("k")
    assert not (fs / "memory/trackside/k").exists()


def test_v2_limits(tmp_path: Path) -> None:
    dirs = CgroupDirs(unified=tmp_path)
    written = {path.name: value for path, value in cgroup.limits(dirs, frozenset({"memory", "cpu"}), SIZE)}
    assert written == {"memory.max": str(1 << 30), "memory.swap.max": "0", "cpu.max": "150000 100000"}
    assert cgroup.joins(dirs) == []


def test_v1_limits_hold_swap_too_and_never_a_quota_the_kernel_refuses(tmp_path: Path) -> None:
    dirs = CgroupDirs(memory=tmp_path, cpu=tmp_path, pids=tmp_path)
    tiny = Resources(cpu_cores=0.001, memory_bytes=4096)
    written = {path.name: value for path, value in cgroup.limits(dirs, frozenset(), tiny)}
    assert written["memory.limit_in_bytes"] == written["memory.memsw.limit_in_bytes"] == "4096"
    assert written["cpu.cfs_quota_us"] == str(cgroup.QUOTA_US_MIN)
    assert written["pids.max"] == str(cgroup.PIDS_MAX)


def test_without_permission_there_are_no_groups(tmp_path: Path) -> None:
    assert Cgroups(Bases()).create("k", SIZE) is None
    nowhere = Bases(unified=tmp_path / "not-there" / "file")
    (tmp_path / "not-there").write_text("")
    assert Cgroups(nowhere).create("k", SIZE) is None
    assert Cgroups(nowhere).processes("k") == set()


@pytest.mark.skipif(not cgroup.detect().limits_memory, reason="no control group can be made here")
def test_real_groups_are_made_and_removed() -> None:
    groups = Cgroups(cgroup.detect())
    name = f"unit-test-{os.getpid()}"
    dirs = groups.create(name, SIZE)
    assert dirs is not None
    assert cgroup.oom_file(dirs) is not None
    assert groups.processes(name) == set()
    groups.remove(name)
    assert not any(path is not None and path.exists() for path in (dirs.memory, dirs.cpu, dirs.unified))
