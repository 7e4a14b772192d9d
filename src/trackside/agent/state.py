"""Knows what a node remembers of a task on disk, as the agent reads and writes it.

The shim writes `shim.json`, `started` and `exit`; everything else is the agent's.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from trackside.agent import record
from trackside.agent.layout import GONE
from trackside.agent.record import ExitRecord, Plan, StartedRecord
from trackside.agent.stage import Staged
from trackside.domain.exchange import Ended, Errand, Launch, Stop

_T = TypeVar("_T")


class _StagedFile(msgspec.Struct):
    environment: dict[str, str]
    arguments: tuple[str, ...]
    code_dir: str | None
    boot_file: str | None
    working_dir: str
    outputs: dict[str, str]


class ErrandRecord(msgspec.Struct, frozen=True):
    """What is remembered of an errand: whether it was answered, and whether nothing of it lasts."""

    errand: Errand
    answered: bool
    over: bool
    refused: bool = False  # nothing of it was done


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files of one task's state directory."""

    directory: Path
    _text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", str(self.directory))

    def _path(self, name: str) -> str:
        return f"{self._text}/{name}"

    def save_order(self, launch: Launch) -> None:
        """Remember that the task is to be started, before anything is done about it."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.replace(self._path(record.ORDER), msgspec.json.encode(launch))

    def order(self) -> Launch | None:
        """Return what was ordered."""
        return self._decode(record.ORDER, Launch)

    def save_stop(self, stop: Stop) -> None:
        """Remember that the task is to be stopped; its shim reads this too."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.replace(self._path(record.STOP), msgspec.json.encode(stop) + b"\n")

    def stop(self) -> Stop | None:
        """Return the order to stop."""
        return self._decode(record.STOP, Stop)

    def save_staged(self, staged: Staged) -> None:
        """Remember where a task's files are: they are not fetched again once it may have begun."""
        value = _StagedFile(
            environment=staged.environment,
            arguments=staged.arguments,
            code_dir=None if staged.code_dir is None else str(staged.code_dir),
            boot_file=None if staged.boot_file is None else str(staged.boot_file),
            working_dir=str(staged.working_dir),
            outputs={url: str(path) for url, path in staged.outputs.items()},
        )
        record.replace(self._path(record.STAGED), msgspec.json.encode(value))

    def staged(self) -> Staged | None:
        """Return where the task's files are."""
        value = self._decode(record.STAGED, _StagedFile)
        if value is None:
            return None
        return Staged(
            environment=value.environment,
            arguments=value.arguments,
            code_dir=None if value.code_dir is None else Path(value.code_dir),
            boot_file=None if value.boot_file is None else Path(value.boot_file),
            working_dir=Path(value.working_dir),
            outputs={url: Path(path) for url, path in value.outputs.items()},
        )

    def save_plan(self, plan: Plan) -> None:
        """Leave the plan for the shim, and room for what it will write."""
        for name in (record.STARTED, record.EXIT):
            # Once made they are the shim's: a shim of an earlier request may be writing already.
            if not os.path.exists(self._path(name)):
                record.preallocate(self._path(name))
        record.replace(self._path(record.PLAN), msgspec.json.encode(plan))

    def plan(self) -> Plan | None:
        """Return the plan that was left for the shim."""
        return cast(Plan | None, self._decode(record.PLAN, dict[str, object]))

    def tmp_dir(self) -> str | None:
        """Return the temporary directory that was made for the task."""
        plan = self.plan()
        return None if plan is None else plan["tmp_dir"]

    def save_ended(self, ended: Ended) -> None:
        """Remember what is told of the task's end, so that it is never told differently."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.replace(self._path(record.ENDED), msgspec.json.encode(ended))

    def ended(self) -> Ended | None:
        """Return what was told of the task's end."""
        return self._decode(record.ENDED, Ended)

    def save_errands(self, errands: list[ErrandRecord]) -> None:
        """Remember what was done to the task on purpose."""
        record.replace(self._path(record.ERRANDS), msgspec.json.encode(errands))

    def errands(self) -> list[ErrandRecord]:
        """Return what was done to the task on purpose, oldest first."""
        return self._decode(record.ERRANDS, list[ErrandRecord]) or []

    def claimed(self) -> bool:
        """Say whether a shim ever took this task."""
        return os.path.exists(self._path(record.SHIM))

    def shim_pid(self) -> int | None:
        """Return the living shim."""
        return record.lock_holder(self._path(record.LOCK))

    def started(self) -> StartedRecord | None:
        """Return what the shim wrote when the task began."""
        return cast(StartedRecord | None, record.read(self._path(record.STARTED)))

    def exit(self) -> ExitRecord | None:
        """Return what the shim wrote when the task had ended."""
        return cast(ExitRecord | None, record.read(self._path(record.EXIT)))

    def remove(self) -> None:
        """Forget the task: at once, even if this is interrupted."""
        gone = self.directory.with_name(GONE + self.directory.name)
        with contextlib.suppress(FileNotFoundError):
            self.directory.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _decode(self, name: str, kind: type[_T]) -> _T | None:
        try:
            with open(self._path(name), "rb") as file:
                return msgspec.json.decode(file.read(), type=kind)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
