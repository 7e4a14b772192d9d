"""Knows what a series is called outside Trackside: one Prometheus name and its labels.

The page that is scraped and the store that is written to use the same names, so one dashboard reads both.
"""

import re

PREFIX = "trackside_task_"
RESERVED = frozenset({"job_id", "job_name", "task", "card", "metric", "job", "instance", "le", "quantile"})

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z", re.ASCII)
_WRAPPED = "x_"  # begins the name of a label that cannot be told as it is


def metric_name(metric: str) -> str:
    """Return the name a metric of a task has; what a name cannot hold becomes an underscore."""
    return PREFIX + _NOT_IN_A_NAME.sub("_", metric)


def wrap_label(name: str, value: str) -> tuple[str, str]:
    """Return a job's own label so that it clashes with none of ours and nothing of it is lost.

    Prometheus takes an empty label for none and has rules for names: what they do not allow is spelled out.
    """
    if value and _LABEL_NAME.match(name) and name not in RESERVED and not name.startswith((_WRAPPED, "__")):
        return name, value
    return _WRAPPED + name.encode().hex(), "=" + value


def unwrap_label(name: str, value: str) -> tuple[str, str]:
    """Return the label that `wrap_label` was given."""
    if name.startswith(_WRAPPED):
        return bytes.fromhex(name[len(_WRAPPED) :]).decode(), value[1:]
    return name, value
