"""Knows which samples are measurements at all: the same that the embedded store takes."""

import math

from trackside.domain.metric import VALUE_MAX, Sample
from trackside.metricstore.intake import (
    AT_MS_MAX,
    CARD_MAX,
    LABEL_CHARS_MAX,
    LABELS_MAX,
    NAME_CHARS_MAX,
)


def acceptable(sample: Sample) -> bool:
    """Say whether a sample is a measurement with names that can be told."""
    names = (sample.job_id, sample.task, sample.metric)
    return (
        math.isfinite(sample.value)
        and abs(sample.value) <= VALUE_MAX
        and 0 <= sample.at_ms < AT_MS_MAX
        and all(0 < len(name) <= NAME_CHARS_MAX and name.isprintable() for name in names)
        and (sample.card is None or 0 <= sample.card <= CARD_MAX)
        and len(sample.labels) <= LABELS_MAX
        and all(_fits(name) and _fits(value) for name, value in sample.labels)
    )


def _fits(text: str) -> bool:
    return len(text) <= LABEL_CHARS_MAX and not any("\ud800" <= character <= "\udfff" for character in text)
