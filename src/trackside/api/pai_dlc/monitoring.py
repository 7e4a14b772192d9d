"""Knows what Settings.ErrorMonitoringArgs asks for: AIMaster's arguments as a hang and a recovery policy.

There is no AIMaster here: what it would watch and restart, Trackside watches and restarts itself.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trackside.domain.errors import Invalid
from trackside.domain.fault import HangPolicy, HangRule, RecoveryPolicy
from trackside.domain.job import NO_RECOVERY

FIELD = "Settings.ErrorMonitoringArgs"
ARGUMENTS_CHARS_MAX = 8192
SECONDS_MAX = 30 * 24 * 3600
RESTARTS_MAX = 1000
SHOWN_CHARS_MAX = 64
SYNC, ASYNC = "Sync", "Async"
UNCONDITIONAL = ("OnFailure", "Always")
NEVER = "Never"

Value = bool | int | str


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most:,}")
        return int(text)

    return read


def _word(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        found = next((word for word in words if word.lower() == text.lower()), None)
        if found is None:
            raise ValueError(f"one of {', '.join(words)}")
        return found

    return read


_SECONDS = _whole(1, SECONDS_MAX)
ARGUMENTS: dict[str, tuple[Callable[[str], Value], Value | None]] = {  # how it is read, and its default
    "job-execution-mode": (_word(SYNC, ASYNC), SYNC),
    "enable-job-restart": (_flag, False),
    "max-num-of-job-restart": (_whole(0, RESTARTS_MAX), 3),
    "job-restart-timeout": (_SECONDS, None),
    "fault-tolerant-policy": (_word(*UNCONDITIONAL, "ExitCodeAndErrorMsg", NEVER), "ExitCodeAndErrorMsg"),
    "enable-job-hang-detection": (_flag, False),
    "job-hang-interval": (_SECONDS, 1800),
    "enable-job-exit-hang-detection": (_flag, False),
    "job-exit-hang-interval": (_SECONDS, 600),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """What is watched and restarted, and what of the wish has no effect."""

    hang: HangPolicy | None = None
    recovery: RecoveryPolicy = NO_RECOVERY
    doubts: tuple[str, ...] = ()


def to_monitoring(settings: Mapping[str, Any]) -> Monitoring:
    """Return what a job's settings ask to be watched, or say which argument cannot be."""
    text = settings.get("ErrorMonitoringArgs") or ""
    if not isinstance(text, str) or len(text) > ARGUMENTS_CHARS_MAX:
        raise Invalid(f"{FIELD} must be a text of at most {ARGUMENTS_CHARS_MAX:,} characters")
    if not _is_on(settings.get("EnableErrorMonitoringInAIMaster")):
        unheard = f"{FIELD} has no effect without EnableErrorMonitoringInAIMaster"
        return Monitoring(doubts=(unheard,) if text.strip() else ())
    given = dict(_given(text))
    values = {name: _read(name, given[name]) if name in given else _default(name) for name in ARGUMENTS}
    doubts = tuple(
        f"{FIELD}: --{name[:SHOWN_CHARS_MAX]} has no effect here" for name in given if name not in ARGUMENTS
    )
    hang = _hang(values)
    if hang is not None and values["job-execution-mode"] == ASYNC:
        hang, doubts = None, (*doubts, f"{FIELD}: hangs are detected with --job-execution-mode=Sync only")
    return Monitoring(hang=hang, recovery=_recovery(values, hang), doubts=doubts)


def _is_on(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _given(text: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments: --name=value, --name value, or --name alone for true."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise Invalid(f"{FIELD} has a quotation mark that is not closed") from None
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise Invalid(f"{FIELD} must be of the form --name=value: {word[:SHOWN_CHARS_MAX]!r} is not")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        yield name, value


def _read(name: str, text: str) -> Value:
    try:
        return ARGUMENTS[name][0](text)
    except ValueError as error:
        raise Invalid(f"{FIELD}: --{name} must be {error}, not {text[:SHOWN_CHARS_MAX]!r}") from None


def _default(name: str) -> Value | None:
    return ARGUMENTS[name][1]


def _hang(values: Mapping[str, Any]) -> HangPolicy | None:
    at_exit = values["job-exit-hang-interval"] if values["enable-job-exit-hang-detection"] else None
    if values["enable-job-hang-detection"]:
        interval = values["job-hang-interval"]
        return HangPolicy(rule=HangRule.SILENCE, window_seconds=interval, exit_seconds=at_exit)
    return None if at_exit is None else HangPolicy(rule=HangRule.NONE, exit_seconds=at_exit)


def _recovery(values: Mapping[str, Any], hang: HangPolicy | None) -> RecoveryPolicy:
    if not values["enable-job-restart"]:
        return NO_RECOVERY
    policy, most = values["fault-tolerant-policy"], values["max-num-of-job-restart"]
    for_faults = 0 if policy == NEVER else most
    together = values["job-execution-mode"] == SYNC
    return RecoveryPolicy(
        job_retries=for_faults if together else 0,
        task_retries=0 if together else for_faults,
        unconditional=policy in UNCONDITIONAL,
        consecutive_max=None,
        hang_restart=hang is not None and most > 0,
        wait_seconds_max=values["job-restart-timeout"],
    )
