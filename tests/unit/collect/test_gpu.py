"""What cards say, through the real nvidia-ml-py and a library that stands in for the driver's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trackside.collect.gpu import Gpus

GIB = 1024**3

READ = """
import json, sys
from trackside.collect.gpu import Gpus
gpus = Gpus()
for line in sys.stdin:
    found = gpus.read(frozenset(json.loads(line)))
    said = {card: [one.values, sorted(one.holders) if one.holders is not None else None]
            for card, one in found.items()}
    print(json.dumps(said), flush=True)
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
    if gpus.read(frozenset({0})):
        pytest.skip("this machine has a card")
    assert gpus.read(frozenset({0, 1})) == {}
    gpus.close()


def memory(used: int, total: int) -> dict[str, float]:
    return {"gpu_memory_used_bytes": used, "gpu_memory_percent": 100 * used / total}


def test_each_card_tells_how_busy_and_how_full_it_is(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(f"70 10 {8 * GIB} {80 * GIB}\n0 0 0 {80 * GIB}\n")
    (answer,) = run(READ, library, script, "[0, 1]\n")
    assert answer == {
        "0": [{"gpu_percent": 70.0, **memory(8 * GIB, 80 * GIB)}, None],
        "1": [{"gpu_percent": 0.0, **memory(0, 80 * GIB)}, None],
    }


@pytest.mark.parametrize("old", [False, True], ids=["new driver", "old driver"])
def test_a_card_tells_power_heat_errors_and_who_holds_it(library: Path, tmp_path: Path, old: bool) -> None:
    script = tmp_path / "cards"
    us = os.getpid()
    script.write_text(f"70 10 {GIB} {4 * GIB} power=68500 temperature=41 ecc=3 pid={us}\n")
    (answer,) = run(READ, library, script, "[0]\n", **({"NVML_STUB_OLD": "1"} if old else {}))
    expected = {
        "gpu_percent": 70.0,
        **memory(GIB, 4 * GIB),
        "gpu_power_watts": 68.5,
        "gpu_temperature_celsius": 41.0,
        "gpu_ecc_errors": 3.0,
    }
    assert answer == {"0": [expected, [us]]}


def test_a_card_nobody_holds_is_not_a_card_that_does_not_tell(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text("5 1 0 0 pid=0\n5 1 0 0\n5 1 0 0 pid=4194304000\n")
    (answer,) = run(READ, library, script, "[0, 1, 2]\n")
    nobody, silent, of_another_namespace = (answer[card][1] for card in "012")
    assert nobody == []
    assert silent is None
    assert of_another_namespace is None


def test_errors_of_a_card_are_told_once_and_to_whom_it_concerns(library: Path, tmp_path: Path) -> None:
    script, events = tmp_path / "cards", tmp_path / "events"
    script.write_text("5 1 0 0\n5 1 0 0\n")
    events.write_text("0 31\n0 79\n1 43\n")
    answers = run(READ, library, script, "[0, 1]\n[0]\n[0]\n[1]\n", NVML_STUB_EVENTS=str(events))
    xids = [{card: said[0].get("gpu_xid") for card, said in answer.items()} for answer in answers]
    # The first reading only begins to listen; card 1 was not asked about until the last.
    assert xids == [{"0": None, "1": None}, {"0": 79.0}, {"0": None}, {"1": 43.0}]


BUSY = {"gpu_percent": 30.0}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"-1 -1 {GIB} {4 * GIB}", {"0": [memory(GIB, 4 * GIB), None]}),
        ("30 1 -1 -1", {"0": [BUSY, None]}),
        ("30 1 0 0", {"0": [BUSY, None]}),
        ("30 1 0 0 power=-1 temperature=-1 ecc=-1", {"0": [BUSY, None]}),
        ("-1 -1 -1 -1", {}),
        (f"30 1 {GIB} {4 * GIB} error=15", {}),
    ],
    ids=["no utilization", "no memory", "no memory size", "blanks", "nothing", "fell off the bus"],
)
def test_what_a_card_does_not_say_is_absent(
    library: Path, tmp_path: Path, line: str, expected: dict[str, Any]
) -> None:
    script = tmp_path / "cards"
    script.write_text(line + "\n")
    (answer,) = run(READ, library, script, "[0]\n")
    assert answer == expected


def test_a_card_that_is_not_there_leaves_the_others(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text("5 1 0 0\n")
    first, second = run(READ, library, script, "[0, 9]\n[0]\n")
    assert first == second == {"0": [{"gpu_percent": 5.0}, None]}


def test_tasks_get_their_own_cards_and_what_these_make_together(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "cards"
    script.write_text(
        f"40 1 {GIB} {4 * GIB} power=100000 temperature=40\n80 1 {3 * GIB} {4 * GIB} power=50000 ecc=2\n"
    )
    (found,) = run(MEASURE, library, script)
    values = {(task, metric, card): value for task, metric, card, value in found}
    assert values == {
        ("a", "gpu_percent", 0): 40.0,
        ("a", "gpu_percent", 1): 80.0,
        ("a", "gpu_percent", None): 60.0,
        ("a", "gpu_memory_percent", 0): 25.0,
        ("a", "gpu_memory_percent", 1): 75.0,
        ("a", "gpu_memory_percent", None): 50.0,
        ("a", "gpu_memory_used_bytes", 0): GIB,
        ("a", "gpu_memory_used_bytes", 1): 3 * GIB,
        ("a", "gpu_memory_used_bytes", None): 4 * GIB,
        ("a", "gpu_power_watts", 0): 100.0,
        ("a", "gpu_power_watts", 1): 50.0,
        ("a", "gpu_power_watts", None): 150.0,
        ("a", "gpu_temperature_celsius", 0): 40.0,
        ("a", "gpu_temperature_celsius", None): 40.0,
        ("a", "gpu_ecc_errors", 1): 2.0,
        ("b", "gpu_percent", 1): 80.0,
        ("b", "gpu_percent", None): 80.0,
        ("b", "gpu_memory_percent", 1): 75.0,
        ("b", "gpu_memory_percent", None): 75.0,
        ("b", "gpu_memory_used_bytes", 1): 3 * GIB,
        ("b", "gpu_memory_used_bytes", None): 3 * GIB,
        ("b", "gpu_power_watts", 1): 50.0,
        ("b", "gpu_power_watts", None): 50.0,
        ("b", "gpu_ecc_errors", 1): 2.0,
    }


HOLD = """
import json, os, subprocess, sys
from trackside.collect.probe import TaskProbe
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.resources import Accelerator, Resources
ahead = 0
given = Resources(cpu_cores=1, memory_bytes=1, cards=1, accelerator=Accelerator.GPU)
child = subprocess.Popen(["sleep", "60"])
with Sensors(5000, clock=lambda: boot_ms() + ahead) as sensors:
    sensors.add(TaskProbe(key=TaskKey("job", 1, "a"), shim_pid=os.getpid(), resources=given, cards=(0,)))
    for line in sys.stdin:
        holders = {"own": child.pid, "other": os.getppid(), "nobody": 0}
        with open(os.environ["NVML_STUB_SCRIPT"], "w") as script:
            script.write("5 1 0 0 " + " ".join(f"pid={holders[word]}" for word in line.split()) + chr(10))
        ahead += 10_000
        found = {s.metric: s.value for s in sensors.read(1) if s.metric.endswith("_processes")}
        print(json.dumps(found), flush=True)
child.kill()
child.wait()
"""


def test_a_card_held_without_a_process_of_the_task_shows(library: Path, tmp_path: Path) -> None:
    answers = run(HOLD, library, tmp_path / "cards", "own other\nnobody\nother\n\n")
    assert answers == [
        {"gpu_processes": 1.0, "gpu_foreign_processes": 1.0},
        {"gpu_processes": 0.0, "gpu_foreign_processes": 0.0},
        {"gpu_processes": 0.0, "gpu_foreign_processes": 1.0},
        {},
    ]
