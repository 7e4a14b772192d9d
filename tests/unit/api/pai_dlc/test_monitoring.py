"""AIMaster's arguments, as a hang and a recovery policy."""

from typing import Any

import pytest

from trackside.api.pai_dlc.monitoring import to_monitoring
from trackside.domain.errors import Invalid
from trackside.domain.fault import HangPolicy, HangRule, RecoveryPolicy
from trackside.domain.job import NO_RECOVERY

ON = {"EnableErrorMonitoringInAIMaster": True}
RESTART = "--enable-job-restart=True"


def read(text: str = "", **settings: Any) -> Any:
    return to_monitoring({**ON, "ErrorMonitoringArgs": text, **settings})


def silence(seconds: int = 1800, at_exit: int | None = None) -> HangPolicy:
    return HangPolicy(rule=HangRule.SILENCE, window_seconds=seconds, exit_seconds=at_exit)


def test_by_default_nothing_is_watched_and_nothing_restarted() -> None:
    for found in (to_monitoring({}), to_monitoring({"ErrorMonitoringArgs": ""}), read()):
        assert (found.hang, found.recovery, found.doubts) == (None, NO_RECOVERY, ())


@pytest.mark.parametrize(
    ("text", "hang"),
    [
        ("--enable-job-hang-detection=True", silence()),
        ("--enable-job-hang-detection", silence()),
        ("--enable-job-hang-detection true --job-hang-interval 600", silence(600)),
        ("--enable-job-hang-detection=True\n--job-hang-interval='900'", silence(900)),
        ("--job-hang-interval=600", None),
        ("--enable-job-hang-detection=False", None),
        ("--enable-job-hang-detection --enable-job-exit-hang-detection", silence(at_exit=600)),
        (
            "--enable-job-exit-hang-detection=true --job-exit-hang-interval=120",
            HangPolicy(rule=HangRule.NONE, exit_seconds=120),
        ),
    ],
)
def test_hangs(text: str, hang: HangPolicy | None) -> None:
    found = read(text)
    assert (found.hang, found.recovery, found.doubts) == (hang, NO_RECOVERY, ())


@pytest.mark.parametrize(
    ("text", "recovery"),
    [
        (RESTART, RecoveryPolicy(job_retries=3, consecutive_max=None, wait_seconds_max=None)),
        (
            f"{RESTART} --fault-tolerant-policy=OnFailure --max-num-of-job-restart=7 "
            "--job-restart-timeout=1800",
            RecoveryPolicy(job_retries=7, unconditional=True, consecutive_max=None, wait_seconds_max=1800),
        ),
        (
            f"{RESTART} --job-execution-mode=Async --fault-tolerant-policy=always",
            RecoveryPolicy(task_retries=3, unconditional=True, consecutive_max=None, wait_seconds_max=None),
        ),
        (
            f"{RESTART} --fault-tolerant-policy=Never --enable-job-hang-detection",
            RecoveryPolicy(hang_restart=True, consecutive_max=None, wait_seconds_max=None),
        ),
        (
            f"{RESTART} --max-num-of-job-restart=0 --enable-job-hang-detection",
            RecoveryPolicy(consecutive_max=None, wait_seconds_max=None),
        ),
        ("--fault-tolerant-policy=OnFailure", NO_RECOVERY),
    ],
)
def test_restarts(text: str, recovery: RecoveryPolicy) -> None:
    assert read(text).recovery == recovery


def test_hangs_of_asynchronous_jobs_are_not_looked_for_and_that_is_said() -> None:
    found = read("--job-execution-mode=Async --enable-job-hang-detection --enable-job-restart")
    assert found.hang is None
    assert not found.recovery.hang_restart
    assert found.doubts == (
        "Settings.ErrorMonitoringArgs: hangs are detected with --job-execution-mode=Sync only",
    )


def test_what_is_not_known_is_passed_over_and_told() -> None:
    found = read("--enable-local-detection=True --enable-c4d-hang-detection --enable-job-hang-detection")
    assert found.hang == silence()
    assert found.doubts == (
        "Settings.ErrorMonitoringArgs: --enable-local-detection has no effect here",
        "Settings.ErrorMonitoringArgs: --enable-c4d-hang-detection has no effect here",
    )


def test_arguments_without_the_switch_do_nothing_and_that_is_said() -> None:
    found = to_monitoring({"ErrorMonitoringArgs": "--enable-job-hang-detection"})
    assert found.hang is None
    assert found.doubts == (
        "Settings.ErrorMonitoringArgs has no effect without EnableErrorMonitoringInAIMaster",
    )
    assert read("--enable-job-hang-detection", EnableErrorMonitoringInAIMaster="true").hang == silence()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--job-hang-interval=soon", "--job-hang-interval must be a whole number from 1 to 2,592,000"),
        ("--job-hang-interval=0", "not '0'"),
        ("--max-num-of-job-restart=-1", "a whole number from 0 to 1,000"),
        ("--enable-job-restart=maybe", "--enable-job-restart must be true or false, not 'maybe'"),
        ("--job-execution-mode=Both", "one of Sync, Async, not 'Both'"),
        ("restart", "must be of the form --name=value: 'restart' is not"),
        ("--enable-job-restart 'True", "a quotation mark that is not closed"),
        ("x" * 9000, "at most 8,192 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(text)
    assert told in str(refused.value)


def test_arguments_must_be_text() -> None:
    with pytest.raises(Invalid, match="must be a text"):
        read(ErrorMonitoringArgs=["--enable-job-restart"])
