"""Knows the one identity operation an SDK needs when it was given a region and no project id."""

import msgspec

from trackside.api.operation import Call, Operation, Param


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project, as the identity service lists it."""

    id: str
    name: str
    enabled: bool = True


class ProjectList(msgspec.Struct, frozen=True, kw_only=True):
    """The projects of a caller."""

    projects: tuple[Project, ...]


async def list_projects(call: Call) -> ProjectList:
    """Return the caller's project under whatever region name was asked for: there is one region here."""
    name = call.query_one("name") or "default"
    return ProjectList(projects=(Project(id=call.caller.project_id, name=name),))


OPERATIONS = (
    Operation(
        name="KeystoneListProjects",
        method="GET",
        path="/v3/projects",
        action="iam:projects:list",
        handler=list_projects,
        summary="Tell a caller its project; the SDK asks when it was given none",
        response=ProjectList,
        query=(Param(name="name", max_length=64), Param(name="domain_id", max_length=64)),
    ),
)
