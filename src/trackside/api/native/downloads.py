"""Knows the links that work for a while without a key."""

from trackside.api.operation import Call, Operation, Param, Raw, Signed
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId
from trackside.service.logs import LINK_PATH


def link_holder(signed: Signed) -> Caller:
    """Let anybody in: the seal in the link is checked where it is used."""
    del signed
    return Caller(user="link holder", project_id=ProjectId(""), role=UserRole.VIEWER)


async def download_log(call: Call) -> Raw:
    """Return the log a link leads to."""
    text = await call.services.logs.linked(
        call.query_one("job") or "",
        call.query_one("task") or "",
        int(call.query_one("expires") or 0),
        call.query_one("seal") or "",
    )
    return Raw(content=text.encode(), media_type="text/plain; charset=utf-8")


OPERATIONS = (
    Operation(
        name="DownloadLog",
        method="GET",
        path=LINK_PATH,
        action="trackside:link:get",
        handler=download_log,
        summary="Read a log through a link of ShowObsUrlOfTrainingJobLogs",
        query=(
            Param(name="job", required=True, max_length=64),
            Param(name="task", required=True, max_length=128),
            Param(name="expires", type=int, required=True, minimum=0, maximum=2**40),
            Param(name="seal", required=True, max_length=64),
        ),
    ),
)
