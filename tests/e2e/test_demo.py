"""`trackside demo` shows a real job and leaves nothing behind, however it ends."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import process_named

pytestmark = pytest.mark.e2e
QUICKSTART = Path(__file__).parents[2] / "examples" / "sdk_quickstart.py"
PATIENCE_SECONDS = 120


def command(place: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "trackside", "demo", "--data-dir", str(place), "--port", "0", *more]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRACKSIDE_")}


def nothing_left(place: Path) -> None:
    assert process_named(str(place)) == []


def test_once_trains_tells_and_cleans_up(tmp_path: Path) -> None:
    place = tmp_path / ".demo"
    done = subprocess.run(
        command(place, "--once", "--seconds", "3"),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"worker-0│ step \d+ loss ([\d.]+)", done.stderr)]
    assert losses[-1] < losses[0]
    assert "state\tsucceeded" in done.stdout
    assert {"worker-0\tcpu_percent", "worker-1\tcpu_percent"} <= {
        "\t".join(line.split("\t")[:2]) for line in done.stdout.splitlines()
    }
    checkpoint = re.search(r"^\S*checkpoint\.npz$", done.stdout, re.MULTILINE)
    assert checkpoint
    assert (tmp_path / checkpoint[0]).exists()
    nothing_left(place)


class OnTerminal:
    """The demo with a terminal, as a person sees it."""

    def __init__(self, place: Path, *more: str) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(place, *more),
            env=environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> str:
        while text not in self.seen:
            self.seen += os.read(self._terminal, 65536).decode(errors="replace").replace("\r\n", "\n")
        return self.seen

    def close_window(self) -> None:
        """Take the terminal away, as closing its window does."""
        os.close(self._terminal)
        self.process.send_signal(signal.SIGHUP)
        self.process.wait(PATIENCE_SECONDS)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        try:
            while part := os.read(self._terminal, 65536):
                self.seen += part.decode(errors="replace")
        except OSError:  # nobody holds the other side any more
            pass
        finally:
            os.close(self._terminal)
        return self.process.wait(PATIENCE_SECONDS)


def test_on_a_terminal_it_stays_and_its_snippet_and_the_sdk_example_work(tmp_path: Path) -> None:
    place = tmp_path / ".demo"
    shown = OnTerminal(place, "--seconds", "2")
    try:
        seen = shown.read_until("press Ctrl+C to stop")
        snippet = seen[seen.index("import json") : seen.index("still running at")]
        for script in (["-c", snippet], [str(QUICKSTART), str(place / "credentials.json")]):
            ran = subprocess.run(
                [sys.executable, *script],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
                env=environment(),
            )
            assert ran.returncode == 0, ran.stderr
            assert "Completed" in ran.stdout
        assert "worker-1 said worker 1 of 2" in ran.stdout
    finally:
        code = shown.end(signal.SIGINT)
    assert code == 0
    nothing_left(place)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_in_the_middle_it_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    place = tmp_path / ".demo"
    shown = OnTerminal(place, "--seconds", "300")
    shown.read_until("worker-0│ step 1 ")
    assert process_named(str(place)) != []
    assert shown.end(number) == code
    nothing_left(place)


def test_when_its_window_is_closed_it_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / ".demo"
    shown = OnTerminal(place, "--seconds", "300")
    shown.read_until("worker-0│ step 1 ")
    assert process_named(str(place)) != []
    shown.close_window()
    nothing_left(place)


def test_a_second_demo_in_the_same_place_is_refused(tmp_path: Path) -> None:
    place = tmp_path / ".demo"
    shown = OnTerminal(place, "--seconds", "300")
    shown.read_until("Submitted")
    second = subprocess.run(
        command(place),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert second.returncode == 6
    assert f"error: Trackside already runs on {place}" in second.stderr
    assert shown.process.poll() is None
    shown.end(signal.SIGINT)
    nothing_left(place)
