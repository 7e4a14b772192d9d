"""What the files of control groups say of memory, in the words of both versions."""

from pathlib import Path

import pytest

from trackside.collect.memory import MemoryMeter, MemoryReading
from trackside.collect.probe import CgroupDirs
from trackside.collect.processes import ProcessTree

MIB = 1024**2
# As kernels 5.15 and 6.8 write them, cut to the lines around those that count.
V2_STAT = f"""anon {150 * MIB}
file {90 * MIB}
kernel {3 * MIB}
shmem {20 * MIB}
inactive_anon {20 * MIB}
active_anon {150 * MIB}
inactive_file {60 * MIB}
active_file {10 * MIB}
"""
V1_STAT = f"""cache {90 * MIB}
rss {100 * MIB}
shmem 0
inactive_file {1 * MIB}
hierarchical_memory_limit {1000 * MIB}
total_cache {90 * MIB}
total_rss {150 * MIB}
total_shmem {20 * MIB}
total_inactive_file {60 * MIB}
"""
VERSIONS = {
    "v1": ("memory", "memory.usage_in_bytes", "memory.max_usage_in_bytes", V1_STAT),
    "v2": ("unified", "memory.current", "memory.peak", V2_STAT),
}


@pytest.fixture
def tree() -> ProcessTree:
    return ProcessTree(1, None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("peak_mib", [400, None])  # before Linux 5.19 there is no memory.peak
def test_page_cache_that_can_be_dropped_is_left_out(
    tmp_path: Path, tree: ProcessTree, version: str, peak_mib: int | None
) -> None:
    field, usage, peak, stat = VERSIONS[version]
    (tmp_path / usage).write_text(f"{243 * MIB}\n")
    (tmp_path / "memory.stat").write_text(stat)
    if peak_mib is not None:
        (tmp_path / peak).write_text(f"{peak_mib * MIB}\n")
    meter = MemoryMeter(CgroupDirs(**{field: tmp_path}))
    peak_bytes = None if peak_mib is None else peak_mib * MIB
    assert meter.read(tree) == MemoryReading(183 * MIB, peak_bytes, 20 * MIB)
    meter.close()


def test_a_unified_group_without_the_memory_controller_is_no_account(
    tmp_path: Path, tree: ProcessTree
) -> None:
    meter = MemoryMeter(CgroupDirs(unified=tmp_path))
    assert meter.read(tree) is None, "there is no process below it either"
    meter.close()
