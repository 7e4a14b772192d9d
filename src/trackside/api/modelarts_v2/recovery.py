"""Knows what the fault-tolerance annotations of ModelArts ask for."""

from collections.abc import Mapping

from trackside.domain.errors import Invalid
from trackside.domain.fault import RecoveryPolicy

PREFIX = "fault-tolerance/"
RETRIES_MAX = 128
_WORDS = {"true": True, "false": False}


def recovery_policy(annotations: Mapping[str, str]) -> RecoveryPolicy:
    """Return what a job asks to be done about faults, or say which annotation makes no sense.

    `proc-retry-num` is our own: how often all processes are restarted in place.
    """
    return RecoveryPolicy(
        job_retries=_number(annotations, "job-retry-num"),
        task_retries=_number(annotations, "pod-retry-num"),
        process_retries=_number(annotations, "proc-retry-num"),
        unconditional=_flag(annotations, "job-unconditional-retry"),
        hang_restart=_flag(annotations, "hang-retry"),
    )


def _number(annotations: Mapping[str, str], name: str) -> int:
    said = annotations.get(PREFIX + name, "").strip() or "0"
    if (
        not said.isascii()
        or not said.isdigit()
        or len(said) > len(str(RETRIES_MAX))
        or int(said) > RETRIES_MAX
    ):
        raise Invalid(
            f'the annotation {PREFIX}{name} must be a number from "0" to "{RETRIES_MAX}", not {said!r}'
        )
    return int(said)


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    said = annotations.get(PREFIX + name, "").strip().lower() or "false"
    if said not in _WORDS:
        raise Invalid(f'the annotation {PREFIX}{name} must be "true" or "false", not {said!r}')
    return _WORDS[said]
