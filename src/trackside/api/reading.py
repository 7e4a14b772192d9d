"""Knows how to read a request's query and body, and how to say what is wrong with them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from trackside.api.operation import Param
from trackside.domain.errors import Invalid, Malformed

QUERY_PAIRS_MAX = 1000
INTEGER_DIGITS_MAX = 18  # fits every column and every clock
SHOWN_CHARACTERS_MAX = 64  # of a value repeated in an error

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MSGSPEC_PLACE = re.compile(r"(?s)(.*) - at `(key` in `)?\$(.*)`")
_DECODE_ANY = msgspec.json.Decoder()


def parse_query(raw_query: bytes) -> dict[str, list[str]]:
    """Return the query's values by name; raise Invalid for what no query may hold."""
    query: dict[str, list[str]] = {}
    if not raw_query:
        return query
    parts = raw_query.split(b"&")
    if len(parts) > QUERY_PAIRS_MAX:
        raise Invalid(f"The query has {len(parts)} parameters; at most {QUERY_PAIRS_MAX} are allowed.")
    for part in parts:
        if part:
            name, _, value = part.partition(b"=")
            query.setdefault(_decoded(name), []).append(_decoded(value))
    return query


def check_query(params: Sequence[Param], query: Mapping[str, Sequence[str]]) -> None:
    """Raise Invalid naming the first parameter that is wrong, its value, and what is allowed.

    An empty value counts as absent; names that the operation does not know are passed over.
    """
    for param in params:
        values = [value for value in query.get(param.name, ()) if value]
        if not values and param.required:
            raise Invalid(f"The query parameter {param.name} is required.")
        if len(values) > 1 and not param.repeated:
            raise Invalid(f"The query parameter {param.name} is given {len(values)} times; once is allowed.")
        for value in values:
            problem = _problem(param, value)
            if problem:
                raise Invalid(f"The query parameter {param.name} is {_shown(value)}; {problem}.")


def decode_body(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Return the body as its type, or raise saying where it is wrong."""
    try:
        if b"\\" in body and b"\\u0000" in body:  # the first is a fiftieth of the work, and mostly enough
            _refuse_nul(_DECODE_ANY.decode(body))
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(_place_first(str(error))) from None
    except msgspec.DecodeError as error:
        raise Malformed(f"The body is not valid JSON: {error}.") from None
    except UnicodeDecodeError:
        raise Malformed("The body is not valid UTF-8.") from None
    except RecursionError:
        raise Malformed("The body is nested too deeply.") from None


def _decoded(raw: bytes) -> str:
    try:
        plain = b"%" not in raw and b"+" not in raw
        text = (raw if plain else unquote_to_bytes(raw.replace(b"+", b" "))).decode()
    except UnicodeDecodeError:
        raise Invalid(f"The query part {_shown(raw.decode('latin-1'))} is not valid UTF-8.") from None
    if "\0" in text:
        raise Invalid(f"The query part {_shown(text)} contains a NUL character.")
    return text


def _problem(param: Param, value: str) -> str | None:
    if param.type is int:
        return _integer_problem(param, value)
    if param.type is bool:
        return None if value.lower() in ("true", "false") else "allowed are true and false"
    if param.choices and value not in param.choices:
        return f"allowed are {', '.join(param.choices)}"
    if param.max_length is not None and len(value) > param.max_length:
        return f"it has {len(value)} characters; at most {param.max_length} are allowed"
    return None


def _integer_problem(param: Param, value: str) -> str | None:
    if not _INTEGER.fullmatch(value) or len(value) > INTEGER_DIGITS_MAX:
        return "a whole number is expected"
    if param.choices and value not in param.choices:
        return f"allowed are {', '.join(param.choices)}"
    number, low, high = int(value), param.minimum, param.maximum
    if (low is None or number >= low) and (high is None or number <= high):
        return None
    if low is None:
        return f"at most {high} is allowed"
    return f"at least {low} is allowed" if high is None else f"allowed are {low} to {high}"


def _shown(value: str) -> str:
    shortened = value if len(value) <= SHOWN_CHARACTERS_MAX else value[:SHOWN_CHARACTERS_MAX] + "…"
    return msgspec.json.encode(shortened).decode()


def _place_first(message: str) -> str:
    """Turn msgspec's "Expected `int`, got `str` - at `$.a.b`" into "a.b: expected int, got str"."""
    match = _MSGSPEC_PLACE.fullmatch(message)
    text, place = (match[1], match[3].lstrip(".")) if match else (message, "")
    text = text.replace("`", "").rstrip(".")
    key = "a key of " if match and match[2] else ""
    return f"{key}{place or 'body'}: {text[:1].lower()}{text[1:]}."


def _refuse_nul(value: Any) -> None:
    for place, text in _strings(value):
        if "\0" in text:
            raise Invalid(f"{place or 'body'}: a NUL character is not allowed.")


def _strings(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string of a decoded body and where it stands; a key stands where its value does."""
    rest: list[tuple[str, Any]] = [("", value)]
    while rest:
        place, item = rest.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, dict):
            for key, inner in item.items():
                below = f"{place}.{key}".lstrip(".").replace("\0", "\\u0000")
                yield below, key
                rest.append((below, inner))
        elif isinstance(item, list):
            rest.extend((f"{place}[{index}]", inner) for index, inner in enumerate(item))
