"""What several tests of the agent begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agent.task_stand_in import TaskStandIn


@pytest.fixture
def task(tmp_path: Path) -> Iterator[TaskStandIn]:
    """Have a task that does nothing for a while."""
    made = TaskStandIn(tmp_path)
    made.begin("sleep", "600")
    yield made
    made.end()
    made.insider.close()
