"""Knows what is said of a notice, in plain words; knows no receiver's format."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trackside.domain.notice import EVENT_NAMES, Notice

TEXT_LENGTH_MAX = 2000  # of each text that comes from a job
DLC_PREFIX = "dlc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What people are told: a title, some lines and where to look."""

    title: str
    lines: tuple[str, ...]
    link: str


def message_of(notice: Notice, link: str, *, test: bool = False) -> Message:
    """Return a notice in words: what happened, why, what to try, and which job it is."""
    name = EVENT_NAMES[notice.kind]
    lines = [line(notice.reason.text if notice.reason else notice.message)]
    if test:
        lines = ["This is a test: no job did this."]
    elif notice.reason is not None:
        lines[0] = f"{lines[0]} ({notice.reason.code})"
        if notice.reason.hint:
            lines.append(f"Try: {line(notice.reason.hint)}")
    attempt = f"attempt {notice.attempt}, " if notice.attempt is not None else ""
    lines.append(f"{attempt}{line(notice.phase)}, by {line(notice.owner)}, project {line(notice.project_id)}")
    lines.append(f"{time_text(notice.at_ms)}, job {notice.job_id}")
    return Message(title=f"{name}: {line(notice.job_name)}", lines=tuple(lines), link=link)


def facts_of(notice: Notice, link: str, *, test: bool = False) -> dict[str, Any]:
    """Return a notice for programs; what is not known is null."""
    reason = notice.reason
    return {
        "id": notice.id,
        "event": EVENT_NAMES[notice.kind],
        "time": time_text(notice.at_ms, separator="T", zone="Z"),
        "time_ms": notice.at_ms,
        "test": test,
        "message": cut(notice.message, TEXT_LENGTH_MAX),
        "job": {
            "id": notice.job_id,
            "dlc_id": f"{DLC_PREFIX}{notice.short_id}" if notice.short_id else None,
            "name": cut(notice.job_name, TEXT_LENGTH_MAX),
            "project_id": notice.project_id,
            "workspace_id": notice.workspace_id,
            "owner": notice.owner,
            "phase": notice.phase.value,
            "attempt": notice.attempt,
            "url": link,
        },
        "reason": reason
        and {
            "text": cut(reason.text, TEXT_LENGTH_MAX),
            "code": reason.code.value,
            "certainty": reason.certainty.value,
            "hint": None if reason.hint is None else cut(reason.hint, TEXT_LENGTH_MAX),
        },
        "culprit": notice.culprit,
    }


def line(text: str) -> str:
    """Return a text as one line without control characters, not too long."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return cut(" ".join(shown.split()), TEXT_LENGTH_MAX)


def cut(text: str, length_max: int) -> str:
    """Return the beginning of a text that is too long."""
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def cut_bytes(text: str, bytes_max: int) -> str:
    """Return the beginning of a text whose UTF-8 is too long."""
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - len("…".encode())].decode(errors="ignore") + "…"


def time_text(at_ms: int, *, separator: str = " ", zone: str = " UTC") -> str:
    """Return a moment to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(f"%Y-%m-%d{separator}%H:%M:%S{zone}")
