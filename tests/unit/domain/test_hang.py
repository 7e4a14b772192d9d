"""When a job counts as hanging: by the rules' own words, and whatever readings there are."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.domain.fault import HangPolicy, HangRule
from trackside.domain.hang import Course, Limits, State, judge, still_since
from trackside.domain.job import TaskName
from trackside.domain.reason import Certainty, ReasonCode

MINUTE = 60_000
WINDOW = 30
NOW = 1_760_000_040_000  # a whole minute
POLICY = HangPolicy(window_seconds=WINDOW * 60)
SILENT = HangPolicy(rule=HangRule.SILENCE, window_seconds=WINDOW * 60)


def flat(value: float, minutes: int = WINDOW + 5, *, end: int = NOW) -> list[tuple[int, float]]:
    """Return one reading per minute that never changes, over so many minutes."""
    return [(end - back * MINUTE, value) for back in range(minutes, -1, -1)]


def growing(minutes: int = WINDOW + 5) -> list[tuple[int, float]]:
    return [(at, float(at - NOW)) for at, _ in flat(0, minutes)]


def course(name: str = "worker-0", **fields: Any) -> Course:
    """Return a task that does nothing at all."""
    values: dict[str, Any] = {
        "task": TaskName(name),
        "step_ms": MINUTE,
        "io_bytes": flat(1000),
        "log_bytes": flat(10),
        "cpu_cores": flat(0.001),
    }
    return Course(**(values | fields))


def on_gpus(name: str = "worker-0", *uses: Sequence[tuple[int, float]], **fields: Any) -> Course:
    return course(name, family="GPU", cards=dict(enumerate(uses)), **fields)


def test_a_flat_hundred_percent_is_a_hang_and_the_numbers_are_told() -> None:
    found = judge([on_gpus("worker-0", flat(100), flat(100))], POLICY)
    assert (found.state, found.everyone, found.tasks) == (State.HANGS, True, ("worker-0",))
    assert found.reason is not None
    assert found.reason.text == (
        "seems to hang since 2025-10-09 08:19:00 UTC: no input or output for 35 min "
        "and GPU use flat at 100 % (median 100, variance 0.0)"
    )
    assert (found.reason.code, found.reason.certainty) == (ReasonCode.HANGED, Certainty.LIKELY)
    assert found.reason.task is None


@pytest.mark.parametrize(
    ("use", "state"),
    [
        (flat(0), State.HANGS),
        ([(at, 100 - (i % 2)) for i, (at, _) in enumerate(flat(0))], State.HANGS),  # 99 and 100
        ([(at, i % 6) for i, (at, _) in enumerate(flat(0))], State.HANGS),  # noise of a card that idles
        ([(at, 60 + 30 * (i % 2)) for i, (at, _) in enumerate(flat(0))], State.MOVES),
        ([(at, 98.6 if i < 20 else 100) for i, (at, _) in enumerate(flat(0))], State.MOVES),  # a slow change
        (flat(100, WINDOW - 5), State.UNSURE),
        ((), State.UNSURE),
    ],
)
def test_a_card_hangs_when_its_use_does_not_change(use: list[tuple[int, float]], state: State) -> None:
    assert judge([on_gpus("worker-0", use)], POLICY).state is state


def test_all_cards_of_a_task_must_be_flat() -> None:
    busy = [(at, 50.0 + i % 9 * 5) for i, (at, _) in enumerate(flat(0))]
    assert judge([on_gpus("worker-0", flat(100), busy)], POLICY).state is State.MOVES
    assert judge([on_gpus("worker-0", flat(100), ())], POLICY).state is State.UNSURE
    assert judge([on_gpus("worker-0")], POLICY).state is State.UNSURE


def test_different_cards_may_stand_still_at_different_heights() -> None:
    idle = [(at, i % 3) for i, (at, _) in enumerate(flat(0))]
    found = judge([on_gpus("worker-0", flat(100), idle)], POLICY)
    assert found.reason is not None
    assert found.reason.text.endswith("GPU use flat at 1 to 100 % (median 1 to 100, variance 0.7)")
    noisy = judge([on_gpus("worker-0", idle)], POLICY)
    assert noisy.reason is not None
    assert noisy.reason.text.endswith("GPU use next to nothing (median 1, variance 0.7)")


def test_cards_are_looked_at_only_where_input_and_output_stand_still() -> None:
    assert judge([on_gpus("worker-0", flat(100), io_bytes=growing())], POLICY).state is State.MOVES


def test_without_cards_the_processor_time_decides() -> None:
    found = judge([course(cpu_cores=flat(0.002))], POLICY)
    assert found.reason is not None
    assert found.reason.text.endswith(
        "no input or output for 35 min and 3.6 s of processor time in the window"
    )
    assert judge([course(cpu_cores=flat(0.003))], POLICY).state is State.MOVES  # 5.4 s of half an hour
    assert judge([course(cpu_cores=())], POLICY).state is State.UNSURE


def test_a_task_that_stands_still_while_others_move_is_named() -> None:
    others = [course(f"worker-{i}", io_bytes=growing()) for i in (0, 1)]
    found = judge([*others, course("worker-2")], POLICY)
    assert (found.state, found.everyone, found.tasks) == (State.HANGS, False, ("worker-2",))
    assert found.reason is not None
    assert found.reason.task == "worker-2"
    assert found.reason.text.startswith(
        "worker-2 seems to hang since 2025-10-09 08:19:00 UTC while 2 others move: "
    )
    assert found.reason.evidence == ("worker-2: no input or output since 2025-10-09 08:19:00 UTC",)


def test_most_waiting_for_a_few_is_no_hang() -> None:
    evaluating = course("worker-0", io_bytes=growing())
    waiting = [course(f"worker-{i}") for i in (1, 2)]
    assert judge([evaluating, *waiting], POLICY).state is State.MOVES
    assert judge([evaluating, waiting[0]], POLICY).tasks == ("worker-1",)


def test_all_tasks_are_told_by_number_and_some_by_name() -> None:
    everyone = judge([course(f"worker-{i}") for i in range(12)], POLICY)
    assert everyone.reason is not None
    assert everyone.reason.text.startswith("all 12 tasks seem to hang since ")
    assert len(everyone.reason.evidence) == 8
    moving = [course(f"ps-{i}", io_bytes=growing()) for i in range(6)]
    some = judge([*moving, *(course(f"worker-{i}") for i in range(6))], POLICY)
    assert some.reason is not None
    assert some.reason.text.startswith(
        "worker-0, worker-1, worker-2, worker-3 and 2 more seem to hang since "
    )


def test_a_task_of_which_nothing_is_known_keeps_the_others_from_being_judged_together() -> None:
    unknown = course("worker-1", io_bytes=())
    assert judge([course(), unknown], POLICY).state is State.UNSURE
    assert judge([course(io_bytes=growing()), unknown], POLICY).state is State.MOVES
    assert judge([unknown], POLICY).state is State.UNSURE
    assert judge([], POLICY).state is State.UNSURE


def test_silence_of_all_logs_is_a_hang_whatever_the_cards_do() -> None:
    busy = [(at, 50.0 + i % 9 * 5) for i, (at, _) in enumerate(flat(0))]
    tasks = [on_gpus(f"worker-{i}", busy, io_bytes=growing()) for i in (0, 1)]
    found = judge(tasks, SILENT)
    assert found.state is State.HANGS
    assert found.reason is not None
    assert found.reason.text == (
        "all 2 tasks seem to hang since 2025-10-09 08:19:00 UTC: "
        "nothing was written to stdout or stderr for 35 min"
    )
    one = judge(tasks[:1], SILENT)
    assert one.reason is not None
    assert one.reason.text.startswith("seems to hang since ")


def test_one_line_of_one_task_breaks_the_silence() -> None:
    printed = [(at, 10 if at < NOW - 10 * MINUTE else 30) for at, _ in flat(0)]
    assert judge([course(), course("worker-1", log_bytes=printed)], SILENT).state is State.MOVES


def test_silence_needs_readings_of_every_log() -> None:
    assert judge([course(), course("worker-1", log_bytes=())], SILENT).state is State.UNSURE
    assert judge([course(log_bytes=flat(10, WINDOW - 1))], SILENT).state is State.UNSURE


def test_silence_begins_anew_when_a_task_ends() -> None:
    assert judge([course()], SILENT, ended_at_ms=NOW - 31 * MINUTE).state is State.HANGS
    assert judge([course()], SILENT, ended_at_ms=NOW - 29 * MINUTE).state is not State.HANGS


@pytest.mark.parametrize("rule", list(HangRule))
def test_a_job_that_does_not_end_hangs_at_its_end(rule: HangRule) -> None:
    policy = HangPolicy(rule=rule, window_seconds=WINDOW * 60, exit_seconds=600)
    running = [course("worker-1", io_bytes=growing(), log_bytes=growing())]
    done = [(TaskName("worker-0"), NOW - 11 * MINUTE), (TaskName("worker-2"), NOW - MINUTE)]
    found = judge(running, policy, succeeded=done)
    assert found.reason is not None
    assert found.reason.text == (
        "seems to hang at its end since 2025-10-09 08:43:00 UTC: "
        "worker-0 succeeded 11 min ago and worker-1 still runs"
    )
    assert judge(running, policy, succeeded=[(TaskName("worker-0"), NOW - 9 * MINUTE)]).state is State.MOVES
    assert judge(running, policy).state is State.MOVES


def test_an_end_seen_only_through_a_jumping_clock_is_no_hang() -> None:
    policy = HangPolicy(rule=HangRule.NONE, exit_seconds=600)
    jumped = [*growing()[:5], *growing()[-4:]]
    done = [(TaskName("worker-0"), NOW - 30 * MINUTE)]
    assert judge([course("worker-1", io_bytes=jumped)], policy, succeeded=done).state is State.MOVES
    unread = course("worker-1", io_bytes=(), log_bytes=())
    assert judge([unread], policy, succeeded=done).state is State.MOVES


def test_other_numbers_can_be_tried() -> None:
    use = [(at, 60 + 10 * (i % 2)) for i, (at, _) in enumerate(flat(0))]
    assert judge([on_gpus("worker-0", use)], POLICY).state is State.MOVES
    assert judge([on_gpus("worker-0", use)], POLICY, limits=Limits(use_variance_max=30)).state is State.MOVES
    wide = Limits(use_variance_max=30, use_median_max=20)
    assert judge([on_gpus("worker-0", use)], POLICY, limits=wide).state is State.HANGS


def test_short_windows_ask_for_less_processor_time() -> None:
    seconds = [(at * 1000, 5.0) for at in range(20)]
    short = HangPolicy(window_seconds=10)
    for cores, state in ((0.04, State.HANGS), (0.06, State.MOVES)):
        used = [(at, cores) for at, _ in seconds]
        task = Course(task=TaskName("worker-0"), step_ms=1000, io_bytes=seconds, cpu_cores=used)
        assert judge([task], short).state is state


def test_a_time_beyond_all_calendars_is_told_as_the_last() -> None:
    far = 1 << 53
    task = course(log_bytes=flat(1, end=far))
    found = judge([task], SILENT)
    assert found.reason is not None
    assert "since 9999-12-31 23:59:59 UTC" in found.reason.text


def test_a_counter_is_still_since_it_had_its_newest_value() -> None:
    assert still_since([], 10) is None
    assert still_since([(1, 5.0)], 10) == (1, False)
    assert still_since([(1, 4.0), (5, 5.0), (9, 5.0)], 10) == (5, True)
    assert still_since([(1, 5.0), (50, 5.0), (55, 5.0)], 10) == (50, False)


minutes_missing = st.sets(st.integers(0, WINDOW + 5))
policies = st.sampled_from([POLICY, SILENT])


@given(st.integers(0, WINDOW - 1), policies)
def test_no_hang_before_the_window_is_full_of_readings(minutes: int, policy: HangPolicy) -> None:
    young = flat(7, minutes)
    task = course(io_bytes=young, log_bytes=young, cpu_cores=young)
    assert judge([task], policy).state is not State.HANGS
    assert (
        judge([on_gpus("worker-0", young, io_bytes=young, log_bytes=young)], policy).state is not State.HANGS
    )


@given(st.integers(1, WINDOW), st.integers(-(10**9), 10**9).filter(bool), policies, st.booleans())
def test_any_change_inside_the_window_clears(ago: int, step: int, policy: HangPolicy, cards: bool) -> None:
    counter = [(at, 10**9 + (step if at > NOW - ago * MINUTE else 0)) for at, _ in flat(0)]
    series: dict[str, Any] = {"io_bytes": counter, "log_bytes": counter}
    task = on_gpus("worker-0", flat(100), **series) if cards else course(**series)
    assert judge([task], policy).state is State.MOVES


@given(minutes_missing, policies)
def test_missing_readings_never_make_a_hang_nor_hide_a_change(missing: set[int], policy: HangPolicy) -> None:
    """What was not read is not taken for stillness: a job that moves every minute is never told to hang."""
    kept = [one for i, one in enumerate(growing()) if i not in missing]
    uneven = [(at, 50.0 + at // MINUTE % 7 * 8) for at, _ in kept]
    for task in (
        course(io_bytes=kept, log_bytes=kept, cpu_cores=[(at, 1.0) for at, _ in kept]),
        on_gpus("worker-0", uneven, io_bytes=kept, log_bytes=kept),
    ):
        assert judge([task], policy).state is not State.HANGS


@given(minutes_missing, policies)
def test_a_hang_is_told_only_over_a_time_that_was_watched(missing: set[int], policy: HangPolicy) -> None:
    kept = [one for i, one in enumerate(flat(3)) if i not in missing]
    found = judge([course(io_bytes=kept, log_bytes=kept, cpu_cores=[(at, 0.0) for at, _ in kept])], policy)
    inside = [at for at, _ in kept if at >= (kept[-1][0] - WINDOW * MINUTE)] if kept else []
    gaps = [b - a for a, b in itertools.pairwise(inside)]
    watched = bool(inside) and inside[-1] - inside[0] == WINDOW * MINUTE and max(gaps) <= 3 * MINUTE
    if found.state is State.HANGS:
        # The reading that completes the window may stand before it.
        assert len(kept) >= 5
        assert kept[-1][0] - kept[0][0] >= WINDOW * MINUTE
        assert max(gaps) <= 3 * MINUTE
    else:
        assert not watched


@given(st.integers(4, 600), st.integers(1, WINDOW - 1), policies)
def test_a_clock_that_jumps_ahead_makes_no_hang(jump: int, since: int, policy: HangPolicy) -> None:
    """Of half an hour by the clock only the minutes after the jump were watched."""
    series = [(at - (0 if at > NOW - since * MINUTE else jump * MINUTE), 3.0) for at, _ in flat(0)]
    task = course(io_bytes=series, log_bytes=series, cpu_cores=[(at, 0.0) for at, _ in series])
    assert judge([task], policy).state is State.UNSURE


@given(st.integers(1, 600), policies)
def test_a_clock_that_was_set_back_adds_no_more_than_a_gap(back: int, policy: HangPolicy) -> None:
    """Twenty minutes, the clock goes back, then six more: never half an hour, however they meet."""
    first, second = flat(3, 20), flat(3, 6, end=NOW + (6 - back) * MINUTE)
    series = sorted({*first, *second})
    task = course(io_bytes=series, log_bytes=series, cpu_cores=[(at, 0.0) for at, _ in series])
    assert judge([task], policy).state is not State.HANGS
