"""Knows where everything of a node lies below its data directory; opens nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from trackside.domain.exchange import TaskKey

GONE = ".gone-"  # prefix of a state directory that is being removed
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Name the files and directories of one node."""

    data_dir: Path

    @property
    def server_file(self) -> Path:
        """Return the file that says where the server is."""
        return self.data_dir / "server.json"

    @property
    def agent_dir(self) -> Path:
        """Return the directory of everything only the agent needs."""
        return self.data_dir / "agent"

    @property
    def token_file(self) -> Path:
        """Return the file that holds the agent's token."""
        return self.agent_dir / "token"

    @property
    def lock_file(self) -> Path:
        """Return the file whose lock the one living agent holds."""
        return self.agent_dir / "lock"

    @property
    def spool_dir(self) -> Path:
        """Return where reports wait."""
        return self.agent_dir / "spool"

    @property
    def tasks_dir(self) -> Path:
        """Return the directory of the tasks' state directories."""
        return self.agent_dir / "tasks"

    @property
    def logs_dir(self) -> Path:
        """Return the directory of all logs."""
        return self.data_dir / "logs"

    @property
    def work_root(self) -> Path:
        """Return the directory of all tasks' own directories."""
        return self.data_dir / "work"

    def state_dir(self, key: TaskKey) -> Path:
        """Return where the shim and the agent keep what they know of a task."""
        return self.tasks_dir / str(key)

    def work_dir(self, key: TaskKey) -> Path:
        """Return the task's own directory."""
        return self.work_root / key.job_id / str(key.attempt) / key.task

    def log_file(self, key: TaskKey) -> Path:
        """Return where the task's output goes."""
        return self.logs_dir / key.job_id / str(key.attempt) / f"{key.task}.log"


def is_plain(key: TaskKey) -> bool:
    """Say whether a key can name files without climbing out of the data directory."""
    return all(_PLAIN.fullmatch(part) for part in (key.job_id, key.task)) and key.attempt >= 0
