"""What cards say, through the real nvidia-ml-py and a library that stands in for the driver's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import missing
from trackside.collect.gpu import Gpus

SOURCE = Path(__file__).parents[2] / "stubs" / "nvml" / "stub.c"
GIB = 1024**3

READ = """
import json, sys
from trackside.collect.gpu import Gpus
gpus = Gpus()
for line in sys.stdin:
    print(json.dumps(gpus.read(set(json.loads(line)))), flush=True)
gpus.close()
"""

MEASURE = """
import json, os, sys
from trackside.collect.probe import TaskProbe
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.resources import Accelerator, Resources
ahead = 0
with Sensors(5000, clock=lambda: boot_ms() + ahead) as sensors:
    tasks = ("a", (0, 1), "gpu"), ("b", (1,), "gpu"), ("c", (0,), "npu"), ("d", (), "none")
    for name, cards, family in tasks:
        given = Resources(cpu_cores=1, memory_bytes=1, cards=len(cards), accelerator=Accelerator(family))
        key = TaskKey("job", 1, name)
        sensors.add(TaskProbe(key=key, shim_pid=os.getpid(), resources=given, cards=cards))
    ahead += 10_000
    found = [s for s in sensors.read(1) if s.metric.startswith(("gpu", "npu"))]
print(json.dumps([[s.task, s.metric, s.card, s.value] for s in found]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in and return the folder it is in."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "-o",
        str(folder / "libnvidia-ml.so.1"),
        str(SOURCE),
    ]
    subprocess.run(command, check=True)
    return folder


def run(code: str, library: Path, script: Path, asked: str = "", **more: str) -> list[Any]:
    """Run Python with the stand-in as the driver's library; return its answers, line by line."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "NVML_STUB_SCRIPT": str(script)} | more
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=asked,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_without_the_library_there_are_no_readings() -> None:
    gpus = Gpus()
    if gpus.read({0}):
        pytest.skip("this machine has a card")
    assert gpus.read({0, 1}) == {}
    gpus.close()


def test_each_card_tells_how_busy_and_how_full_it_is(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(f"70 10 {8 * GIB} {80 * GIB}\n0 0 0 {80 * GIB}\n")
    (answer,) = run(READ, library, script, "[0, 1]\n")
    assert answer == {"0": [70.0, 10.0], "1": [0.0, 0.0]}


def test_old_drivers_are_asked_the_old_way(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(f"70 10 {8 * GIB} {80 * GIB}\n")
    (answer,) = run(READ, library, script, "[0]\n", NVML_STUB_NO_V2="1")
    assert answer == {"0": [70.0, 10.0]}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"-1 -1 {GIB} {4 * GIB}", {"0": [None, 25.0]}),
        ("30 1 -1 -1", {"0": [30.0, None]}),
        ("30 1 0 0", {"0": [30.0, None]}),
        ("-1 -1 -1 -1", {}),
        (f"30 1 {GIB} {4 * GIB} 15", {}),
    ],
    ids=["no utilization", "no memory", "no memory size", "nothing", "fell off the bus"],
)
def test_what_a_card_does_not_say_is_absent(
    library: Path, tmp_path: Path, line: str, expected: dict[str, list[float | None]]
) -> None:
    script = tmp_path / "cards"
    script.write_text(line + "\n")
    (answer,) = run(READ, library, script, "[0]\n")
    assert answer == expected


def test_a_card_that_is_not_there_leaves_the_others(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(f"5 1 {GIB} {4 * GIB}\n")
    first, second = run(READ, library, script, "[0, 9]\n[0]\n")
    assert first == second == {"0": [5.0, 25.0]}


def test_tasks_get_their_own_cards_and_the_mean_of_them(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(f"40 1 {GIB} {4 * GIB}\n80 1 {3 * GIB} {4 * GIB}\n")
    (found,) = run(MEASURE, library, script)
    values = {(task, metric, card): value for task, metric, card, value in found}
    assert values == {
        ("a", "gpu_percent", 0): 40.0,
        ("a", "gpu_percent", 1): 80.0,
        ("a", "gpu_percent", None): 60.0,
        ("a", "gpu_memory_percent", 0): 25.0,
        ("a", "gpu_memory_percent", 1): 75.0,
        ("a", "gpu_memory_percent", None): 50.0,
        ("b", "gpu_percent", 1): 80.0,
        ("b", "gpu_percent", None): 80.0,
        ("b", "gpu_memory_percent", 1): 75.0,
        ("b", "gpu_memory_percent", None): 75.0,
    }
