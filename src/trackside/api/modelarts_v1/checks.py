"""Knows how the dialect refuses a value of a path or a query: by its name, with what would be valid."""

import re
from collections.abc import Collection

from trackside.api.operation import Call
from trackside.domain.errors import Invalid

NUMBER_DIGITS_MAX = 15  # all of JSON's whole numbers that every client reads exactly


def one_of(field: str, value: str, valid: Collection[str]) -> str:
    """Return the value, or say which there are."""
    if value not in valid:
        raise Invalid(f"{field} must be one of [{' '.join(valid)}], not {value[:64]!r}")
    return value


def path_number(call: Call, name: str) -> int:
    """Return a whole number of the path."""
    text = call.path[name]
    if not re.fullmatch(rf"[0-9]{{1,{NUMBER_DIGITS_MAX}}}", text):
        raise Invalid(f"{name} must be a whole number, not {text[:64]!r}")
    return int(text)


def query_int(call: Call, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number of the query within its bounds."""
    text = call.query_one(name)
    if text is None:
        return default
    if not re.fullmatch(rf"[+-]?[0-9]{{1,{NUMBER_DIGITS_MAX}}}", text) or not least <= int(text) <= most:
        raise Invalid(f"{name} must be a whole number from {least} to {most}, not {text[:64]!r}")
    return int(text)
