"""Knows how columns of numbers become JSON text, all at once; knows no dialect.

Every number of a column gets the same width, filled up with blanks, which JSON passes over: so the text of a
hundred thousand numbers is a table of four-letter words, put together from smaller tables.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson

Words = npt.NDArray[np.uint32]  # four letters each
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ABSENT = b"-1"
ABSENT_REMEMBERED_MAX = 64  # lists of nothing: a task without cards has such for as many minutes as it runs
_THOUSAND, _MILLION, _FOUR_DIGITS = 10**3, 10**6, 10**4
_WHOLE_MAX = 10**8 - 1  # what two words tell
_WORD = 4
_BLANK = np.frombuffer(b"    ", np.uint32)[0]
_ABSENT_WORDS = np.frombuffer(b",  -1   ", np.uint32)


def list_of(numbers: Floats) -> bytes:
    """Return a JSON list of numbers with up to three decimals; -1 for each that is not finite."""
    if _below(numbers, _THOUSAND - 1):
        return _list(_three_decimals(numbers))
    absent = ~np.isfinite(numbers)
    if absent.all():
        return _all_absent(len(numbers))
    known = np.where(absent, 0.0, numbers)
    if not _below(known, _THOUSAND - 1):
        told = orjson.loads(orjson.dumps(np.round(known, 3), option=orjson.OPT_SERIALIZE_NUMPY))
        return orjson.dumps([-1 if no else one for one, no in zip(told, absent.tolist(), strict=True)])
    words = _three_decimals(known)
    words[absent] = _ABSENT_WORDS
    return _list(words)


def rows_of(numbers: Floats, *, before: int, end: str) -> Words | None:
    """Return a row for each number: words that are left to the caller, six decimals, and one letter.

    None if there are any that this does not know how to write: below zero, huge, or not finite.
    """
    if not _below(numbers, _WHOLE_MAX):
        return None
    scaled = np.rint(numbers * _MILLION).astype(np.int64)
    whole = scaled // _MILLION
    part = scaled - whole * _MILLION
    wide = bool(whole.max(initial=0) >= _FOUR_DIGITS)
    rows = np.empty((len(numbers), before + wide + 3), np.uint32)
    if wide:
        front = whole // _FOUR_DIGITS
        back = whole - front * _FOUR_DIGITS
        rows[:, before] = np.where(front > 0, _table("%4d")[front], _BLANK)
        rows[:, before + 1] = np.where(front > 0, _table("%04d")[back], _table("%4d")[back])
    else:
        rows[:, before] = _table("%4d")[whole]
    high = part // _THOUSAND
    rows[:, -2] = _table(".%03d")[high]
    rows[:, -1] = _table(f"%03d{end}")[part - high * _THOUSAND]
    return rows


def words_of(texts: Sequence[bytes]) -> Words:
    """Return texts as rows of words, filled up with blanks to the width of the longest."""
    letters = max(map(len, texts), default=0)
    width = -(-letters // _WORD) * _WORD
    joined = b"".join([text.ljust(width) for text in texts])
    return np.frombuffer(joined, np.uint32).reshape(len(texts), width // _WORD)


def _below(numbers: Floats, limit: int) -> bool:
    """Say whether all are from 0 up to a limit; what is not a number is not."""
    return bool(numbers.min(initial=0.0) >= 0 and numbers.max(initial=0.0) < limit)


def _three_decimals(numbers: Floats) -> Words:
    """Return two words for each: a comma and the whole part, a point and the decimals."""
    scaled = np.rint(numbers * _THOUSAND).astype(np.int64)
    whole = scaled // _THOUSAND
    words = np.empty((len(numbers), 2), np.uint32)
    words[:, 0] = _table(",%3d")[whole]
    words[:, 1] = _table(".%03d")[scaled - whole * _THOUSAND]
    return words


def _list(words: Words) -> bytes:
    return b"[" + words.tobytes()[1:] + b"]"


@lru_cache(maxsize=ABSENT_REMEMBERED_MAX)
def _all_absent(count: int) -> bytes:
    return b"[" + b",".join([ABSENT] * count) + b"]"


@lru_cache
def _table(form: str) -> Words:
    """Return how each number of three or four digits is written."""
    count = _FOUR_DIGITS if "4" in form else _THOUSAND
    return np.frombuffer("".join([form % number for number in range(count)]).encode("ascii"), np.uint32)
