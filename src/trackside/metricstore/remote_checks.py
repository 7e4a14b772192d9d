"""Knows which samples are measurements at all."""

import math

from trackside.domain.metric import Sample

NAME_CHARS_MAX = 128
LABEL_CHARS_MAX = 1024
AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly
CARD_MAX = 65_535
VALUE_MAX = 1e300  # so that a sum of them is still a number


def acceptable(sample: Sample) -> bool:
    """Say whether a sample is a measurement with names that can be told."""
    names = (sample.job_id, sample.task, sample.metric)
    return (
        math.isfinite(sample.value)
        and abs(sample.value) <= VALUE_MAX
        and 0 <= sample.at_ms < AT_MS_MAX
        and all(0 < len(name) <= NAME_CHARS_MAX and name.isprintable() for name in names)
        and (sample.card is None or 0 <= sample.card <= CARD_MAX)
        and all(_tellable(name) and _tellable(value) for name, value in sample.labels)
    )


def _tellable(text: str) -> bool:
    return len(text) <= LABEL_CHARS_MAX and text.isprintable()
