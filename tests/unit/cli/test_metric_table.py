"""A person's view of metrics: one line for each, what is new in it, and nothing cut in two."""

from collections.abc import Callable

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_server import JOB_ID, Answer, FakeServer, Request, job
from trackside.cli import words
from trackside.cli.metric_table import _with_gaps
from trackside.cli.views import SeriesView

BEGAN_MS, MINUTE_MS = 1_700_000_000_000, 60_000
ENDED_MS = BEGAN_MS + 24 * 60 * MINUTE_MS  # a day: a step of the curve is an hour
PATH = f"/api/trackside/v1/jobs/{JOB_ID}/metrics"
LONG_LABELS = {"dataset": "a-name-that-goes-on-for-quite-a-while", "split": "validation"}
SERIES: dict[str, tuple[dict[str, str], Callable[[int], float]]] = {
    "cpu_percent": ({}, lambda step: 50.0),
    "custom.tokens_total": ({}, lambda step: 1_000_000.0 * step),
    "custom.tokens_per_second": ({}, lambda step: 12_345.678),
    "custom.loss": (LONG_LABELS, lambda step: 1 / (step + 1)),
    "gpu_power_watts": ({}, lambda step: 99.6),
    "gpu_temperature_celsius": ({}, lambda step: 40.2),
}


def answer(request: Request) -> Answer:
    """Tell series in the steps that were asked for: the last of the minutes is unlike the others."""
    start, end, step = (int(request.query[name][0]) for name in ("start_ms", "end_ms", "step_ms"))
    last_minute = end - start <= MINUTE_MS
    told = []
    for metric, (labels, value) in SERIES.items():
        points = [
            [at, 90.0 + (at - start) / step if last_minute and metric == "cpu_percent" else value(number)]
            for number, at in enumerate(range(start, end - 1, step))
        ]
        told.append({"task": "worker-0", "metric": metric, "card": None, "labels": labels, "points": points})
    return 200, {"series": told}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def of(columns: int) -> None:
        monkeypatch.setattr("trackside.cli.session.Session.terminal", True)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")

    return of


@pytest.fixture
def shown(fake: FakeServer, run: Run) -> Callable[[], list[str]]:
    fake.jobs = [
        job(
            phase="succeeded",
            started_at_ms=BEGAN_MS,
            ended_at_ms=ENDED_MS,
            tasks=[{"name": "worker-0"}],
        )
    ]
    fake.answers["GET", PATH] = answer
    return lambda: [line.rstrip() for line in run("metrics", "llama-sft").out.splitlines()]


def test_the_last_minute_is_the_last_minute_of_a_long_job_too(shown: Callable[[], list[str]]) -> None:
    rows = {line.split("\t")[1]: line.split("\t") for line in shown()[1:]}
    assert float(rows["cpu_percent"][2]) == pytest.approx(95.5)  # of twelve steps, and not of the last hour
    assert float(rows["cpu_percent"][3]) == pytest.approx(95.5)
    assert float(rows["custom.tokens_total"][2]) == 11_000_000  # a count is what it is now


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_each_series_has_one_line_and_its_numbers_are_whole(
    shown: Callable[[], list[str]], terminal: Callable[[int], None], columns: int
) -> None:
    terminal(columns)
    lines = shown()
    assert len(lines) == 1 + len(SERIES)
    assert all(len(line) <= columns for line in lines)
    for whole in ("11,000,000", "12,346 /s", "100 W", "40 °C", "96 %"):
        assert any(whole in line for line in lines), whole
    assert any(block in "".join(lines) for block in words.BLOCKS) == (columns >= 160)


def test_a_curve_of_what_is_read_seldom_has_no_gaps_but_real_ones() -> None:
    def curve(metric: str, *seconds: int) -> list[float | None]:
        points = [(BEGAN_MS + at * 1000, float(at)) for at in seconds]
        return _with_gaps(SeriesView(task="worker-0", metric=metric, points=points), 5_000)

    assert curve("custom.loss", 0, 15, 30, 60) == [0.0, 15.0, 30.0, None, 60.0]
    assert curve("cpu_percent", 0, 5, 15) == [0.0, 5.0, None, 15.0]


def test_numbers_are_written_as_people_write_them() -> None:
    texts = {
        0.0029134: "0.002913",
        99.82: "99.82",
        9_999: "9999",
        3_850_240: "3,850,240",
        1e20: "1e+20",
        -2e6: "-2,000,000",
    }
    assert {value: words.number(value) for value in texts} == texts


def test_a_curve_is_squeezed_into_what_room_there_is() -> None:
    values = [1.0, 3.0, None, None, 5.0, None, 7.0]
    assert words.squeezed(values, 4) == [2.0, None, 5.0, 7.0]
    assert words.squeezed(values, 7) == values
    assert words.squeezed([], 7) == []
