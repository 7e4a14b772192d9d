"""What runs jobs: the engine, the supervisor, the pools, and the services they need to know each other by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trackside.config import Settings
from trackside.domain.exchange import Launch
from trackside.domain.job import Job, NodeId, RuntimeChoice, Task
from trackside.domain.launching import launch_order
from trackside.domain.pool import QueuePolicy
from trackside.domain.resources import Capacity, Flavor, derive_flavors
from trackside.engine.local import LocalEngine
from trackside.ports import Clock
from trackside.service import Catalog, JobQuotas, Jobs, Pools
from trackside.service.errands import Errands
from trackside.supervise.loop import Supervisor
from trackside.wiring.places import Places

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Work:
    """The parts that start, place and end jobs."""

    catalog: Catalog
    errands: Errands
    engine: LocalEngine
    supervisor: Supervisor
    pools: Pools
    quotas: JobQuotas
    jobs: Jobs


def build_work(settings: Settings, places: Places, clock: Clock) -> Work:
    """Put together what runs jobs; nothing runs yet."""
    store = places.stores.jobs
    catalog = Catalog(
        lambda: _flavors(settings, engine),
        [one.to_runtime() for one in settings.engines],
        strict_images=settings.images == "strict",
    )
    errands = Errands(clock=clock, wake=lambda: engine.changed())  # noqa: PLW0108 - made below
    engine = LocalEngine(active=store.active, launch=_launcher(catalog), clock=clock, errands=errands.of)
    supervisor = Supervisor(
        store,
        engine,
        clock,
        forget=places.forget,
        pools=lambda: pools.all(),  # noqa: PLW0108 - made below: each of the two needs the other
        closed_nodes=lambda: pools.closed_nodes(),  # noqa: PLW0108
        labels=lambda: pools.labels(),  # noqa: PLW0108
        emptied_nodes=lambda: pools.emptied_nodes(),  # noqa: PLW0108
        isolated_cards=lambda: pools.isolated_cards(),  # noqa: PLW0108
        isolate=lambda faulty, why: pools.isolate(faulty, why),  # noqa: PLW0108
    )
    pools = Pools(
        store=places.stores.pools,
        jobs=store,
        catalog=catalog,
        nodes=engine.nodes,
        clock=clock,
        changed=supervisor.wake,
        line=supervisor.line,
        default_policy=QueuePolicy(settings.queue_policy),
    )
    quotas = JobQuotas(places.stores.documents, store)
    jobs = Jobs(
        store=store,
        catalog=catalog,
        objects=places.objects,
        clock=clock,
        pools=pools,
        grace_seconds=settings.stop_grace_seconds,
        wake=supervisor.wake,
        orders_changed=engine.changed,
        admit=quotas.admit,
    )
    return Work(catalog, errands, engine, supervisor, pools, quotas, jobs)


def _flavors(settings: Settings, engine: LocalEngine) -> Sequence[Flavor]:
    if settings.flavors:
        return [one.to_flavor() for one in settings.flavors]
    capacities = [node.capacity for node in engine.nodes()]
    return derive_flavors(max(capacities, key=_size)) if capacities else ()


def _size(capacity: Capacity) -> tuple[int, float]:
    return capacity.gpus + capacity.npus, capacity.cpu_cores


def _launcher(catalog: Catalog) -> Callable[[Job, Task, dict[NodeId, str]], Launch]:
    def launch(job: Job, task: Task, addresses: dict[NodeId, str]) -> Launch:
        role = next(role for role in job.spec.roles if role.name == task.role)
        choice = RuntimeChoice(image=role.image) if role.image else job.spec.runtime
        runtime = catalog.resolve(choice)
        return launch_order(
            job,
            task,
            hosts=_hosts(job, addresses),
            path_prefix=runtime.path_prefix if runtime else (),
            runtime_environment=dict(runtime.environment) if runtime else {},
        )

    return launch


def _hosts(job: Job, addresses: dict[NodeId, str]) -> list[str]:
    """Return where each task can be met; those of one machine meet on loopback, which no firewall closes."""
    if len({task.node_id for task in job.tasks}) == 1:
        return [LOOPBACK] * len(job.tasks)
    return [addresses[task.node_id] for task in job.tasks]
