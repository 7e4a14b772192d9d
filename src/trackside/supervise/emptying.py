"""Knows how nodes become empty when somebody asks for it: their jobs are ended and queued again."""

from collections.abc import Callable, Mapping, Sequence

from trackside.domain import rules
from trackside.domain.job import Job, NodeId
from trackside.ports import JobStore, Update


async def empty_nodes(
    store: JobStore, jobs: Sequence[Job], nodes: Mapping[NodeId, str], *, at_ms: int
) -> bool:
    """Tell every job that lives on such a node to leave it; say whether there were any.

    `nodes` says by whose wish. It is looked at in every round: a job that was placed there just before its
    node was closed leaves it, too.
    """
    changes = [
        (job.id, _leaver(node_id, nodes[node_id], at_ms))
        for job in jobs
        for node_id in dict.fromkeys(task.node_id for task in job.tasks)
        if node_id in nodes and rules.evict(job, node_id, by=nodes[node_id], at_ms=at_ms) is not None
    ]
    if changes:
        await store.update_many(changes)
    return bool(changes)


def _leaver(node_id: NodeId, by: str, at_ms: int) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        moved = rules.evict(job, node_id, by=by, at_ms=at_ms)
        return Update(job=moved[0], events=moved[1]) if moved else None

    return change
