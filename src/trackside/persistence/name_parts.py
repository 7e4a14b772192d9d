"""Knows how jobs are found by a part of their name without looking at every one, where SQLite keeps an index.

Anything else, PostgreSQL's index among it, works through the ordinary conditions.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from trackside.domain.job import ProjectId
from trackside.persistence.codec import fold

PART_LENGTH_MIN = 3  # characters: shorter ones are in no index
_SPAN = 1 << 40  # of a project's row ids; the job's number is added

_KNOWN = text("SELECT 1 FROM sqlite_master WHERE name = 'name_parts'")
_PROJECT = text(
    "SELECT id, (SELECT count(*) FROM name_parts_projects) = 1 AS alone"
    " FROM name_parts_projects WHERE project_id = :project_id"
)
_OF_PROJECT = "FROM name_parts WHERE name_parts MATCH :parts AND rowid BETWEEN :first AND :last"
_FIND = text(f"SELECT rowid - :first {_OF_PROJECT} LIMIT :most")
_COUNT = text(f"SELECT count(*) {_OF_PROJECT}")
_COUNT_ALL = text("SELECT count(*) FROM name_parts WHERE name_parts MATCH :parts")  # half the work


class NameParts:
    """The names of one project that contain one of some texts."""

    def __init__(self, connection: Connection, first: int, match: str, *, alone: bool) -> None:
        self._connection = connection
        self._alone = alone  # there is no other project
        self._values = {"first": first, "last": first + _SPAN - 1, "parts": match}

    def numbers(self, most: int) -> list[int] | None:
        """Return the numbers of the jobs; None if they are more than that."""
        found = self._connection.scalars(_FIND, {**self._values, "most": most + 1}).all()
        return None if len(found) > most else list(found)

    def count(self) -> int:
        """Return how many jobs there are, those that are being deleted among them."""
        if self._alone:
            return self._connection.scalar(_COUNT_ALL, {"parts": self._values["parts"]}) or 0
        return self._connection.scalar(_COUNT, self._values) or 0


def name_parts(connection: Connection, project_id: ProjectId, texts: Sequence[str]) -> NameParts | None:
    """Return the names that contain one of the texts; None if no index knows them."""
    parts = [fold(one) for one in texts]
    if connection.dialect.name != "sqlite" or not parts or min(map(len, parts)) < PART_LENGTH_MIN:
        return None
    if connection.scalar(_KNOWN) is None:
        return None
    project = connection.execute(_PROJECT, {"project_id": project_id}).first()
    if project is None:
        return None
    match = " OR ".join('"' + part.replace('"', '""') + '"' for part in parts)
    return NameParts(connection, project.id * _SPAN, match, alone=bool(project.alone))
