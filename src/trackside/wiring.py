"""The composition root: the only place that builds concrete classes and knows them all."""

import asyncio
import hmac
import importlib.metadata
import ipaddress
import logging
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trackside import bootstrap
from trackside.agent.control import AgentTrouble, ensure_agent
from trackside.api.app import App, build_app
from trackside.api.authenticate import Authenticator
from trackside.api.authenticate_acs import AcsAuthenticator
from trackside.api.exposition import Counted, MetricsPage, Sources
from trackside.api.iam import routes as iam
from trackside.api.modelarts_v1 import errors as v1_errors
from trackside.api.modelarts_v1 import routes as v1
from trackside.api.modelarts_v2 import errors as v2_errors
from trackside.api.modelarts_v2 import notification, pool_errors
from trackside.api.modelarts_v2 import routes as v2
from trackside.api.modelarts_v2.routes_pools import POOL_OPERATIONS
from trackside.api.native import access, downloads
from trackside.api.native import chaos as native_chaos
from trackside.api.native import notify as native_notify
from trackside.api.native import policies as native_policies
from trackside.api.native import pools as native_pools
from trackside.api.native import routes as native
from trackside.api.native import stacks as native_stacks
from trackside.api.native.agent_link import AgentLink
from trackside.api.operation import Dialect, Operation
from trackside.api.pai_dlc import errors as dlc_errors
from trackside.api.pai_dlc import routes as dlc
from trackside.api.server import serve
from trackside.api.tally import Tallies
from trackside.auth.directory import Directory
from trackside.auth.nonces import Nonces
from trackside.auth.temporary import TemporaryKeys
from trackside.clock import SystemClock
from trackside.config import Settings
from trackside.domain.errors import Invalid
from trackside.domain.exchange import Launch
from trackside.domain.identity import Caller, User
from trackside.domain.job import Job, NodeId, ProjectId, RuntimeChoice, Task
from trackside.domain.launching import launch_order
from trackside.domain.pool import QueuePolicy
from trackside.domain.resources import Capacity, Flavor, derive_flavors
from trackside.engine.local import LocalEngine
from trackside.logstore.files import FileLogs
from trackside.logstore.stacks import FileStacks
from trackside.metricstore.appender import Appender
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.notify.mail import Mailer, mail_server
from trackside.notify.notifier import Notifier
from trackside.notify.sender import Sender
from trackside.objectstore.local import open_objects
from trackside.objectstore.s3 import open_s3
from trackside.persistence.stores import Stores, open_stores
from trackside.ports import MetricStore, ObjectStore
from trackside.service import (
    Attempts,
    Catalog,
    Documents,
    JobQuotas,
    Jobs,
    Logs,
    Metrics,
    Objects,
    Pending,
    Pools,
    Services,
    StackTaker,
    Tokens,
    Topics,
    Users,
)
from trackside.service.chaos import Chaos
from trackside.service.errands import Errands
from trackside.service.policies import Policies
from trackside.service.things import job_in_path
from trackside.supervise.hang import HangSettings, HangWatch
from trackside.supervise.loop import Supervisor

if TYPE_CHECKING:
    from trackside.metricstore.prometheus import PrometheusMetricStore

log = logging.getLogger(__name__)
AGENT_CHECK_SECONDS = 1.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Access:
    """What tells who calls, and what they may do."""

    directory: Directory
    policies: Policies
    temporary: TemporaryKeys
    signed: Authenticator
    acs: AcsAuthenticator

    def users_changed(self, users: Sequence[User]) -> None:
        """Take over who there is."""
        self.directory.replace(users)
        self.policies.users_changed(users)

    def allowed(self, caller: Caller, operation: Operation, path: Mapping[str, str]) -> bool:
        """Say yes, or raise Forbidden; that a caller stays in its project is checked with the signature."""
        self.policies.check(caller, operation.action, path)
        return True


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a running server is made of."""

    settings: Settings
    data_dir: Path
    stores: Stores
    metrics: "EmbeddedMetricStore | PrometheusMetricStore"
    appender: Appender
    logs: FileLogs
    objects: ObjectStore
    access: Access
    engine: LocalEngine
    supervisor: Supervisor
    notifier: Notifier
    hangs: HangWatch
    services: Services
    dialects: Sequence[Dialect]
    app: App


def build(settings: Settings) -> Parts:
    """Put a server together; nothing runs yet."""
    data_dir = Path(settings.data_dir).expanduser().resolve()
    bootstrap.prepare(data_dir)
    clock = SystemClock()
    stores = open_stores(settings.database_url or f"sqlite:///{data_dir / 'trackside.db'}")
    metric_store = _metric_store(settings, data_dir)
    log_store, stack_store = FileLogs(data_dir / "logs"), FileStacks(data_dir / "logs")
    objects = _objects(settings, data_dir)
    catalog = Catalog(
        lambda: _flavors(settings, engine),
        [one.to_runtime() for one in settings.engines],
        strict_images=settings.images == "strict",
    )
    errands = Errands(clock=clock, wake=lambda: engine.changed())  # noqa: PLW0108 - made below
    engine = LocalEngine(
        active=stores.jobs.active, launch=_launcher(catalog), clock=clock, errands=errands.of
    )
    supervisor = Supervisor(
        stores.jobs,
        engine,
        clock,
        forget=_forgetter(data_dir, stores, metric_store, log_store),
        pools=lambda: pools.all(),  # noqa: PLW0108 - made below: each of the two needs the other
        closed_nodes=lambda: pools.closed_nodes(),  # noqa: PLW0108
        labels=lambda: pools.labels(),  # noqa: PLW0108
        emptied_nodes=lambda: pools.emptied_nodes(),  # noqa: PLW0108
        isolated_cards=lambda: pools.isolated_cards(),  # noqa: PLW0108
        isolate=lambda faulty, why: pools.isolate(faulty, why),  # noqa: PLW0108
    )
    pools = Pools(
        store=stores.pools,
        jobs=stores.jobs,
        catalog=catalog,
        nodes=engine.nodes,
        clock=clock,
        changed=supervisor.wake,
        line=supervisor.line,
        default_policy=QueuePolicy(settings.queue_policy),
    )
    quotas = JobQuotas(stores.documents, stores.jobs)
    jobs = Jobs(
        store=stores.jobs,
        catalog=catalog,
        objects=objects,
        clock=clock,
        pools=pools,
        grace_seconds=settings.stop_grace_seconds,
        wake=supervisor.wake,
        orders_changed=engine.changed,
        admit=quotas.admit,
    )
    link_key = bootstrap.kept_secret(data_dir / "link.key").encode()
    documents, tokens = Documents(stores.documents), Tokens(key=link_key, clock=clock)
    who = _access(settings, stores, documents, tokens, link_key, clock)
    logs = Logs(jobs, log_store, clock=clock, endpoint=_endpoint(settings, settings.port), link_key=link_key)
    sender = Sender(
        clock=clock,
        mailer=_mailer(settings),
        link=lambda job_id: f"{logs.endpoint}{native.PREFIX}/jobs/{job_id}",
    )
    topics = Topics(store=stores.topics, clock=clock, sender=sender, asked=notification.asked_of)
    notifier = Notifier(
        stores.outbox,
        sender,
        clock,
        topics=topics.all,
        recipients=topics.recipients,
        tell=stores.jobs.add_events,
    )
    metrics = Metrics(jobs, metric_store, clock)
    services = Services(
        jobs=jobs,
        attempts=Attempts(jobs, log_store, stack_store, metrics, clock=clock),
        metrics=metrics,
        logs=logs,
        catalog=catalog,
        users=Users(store=stores.identities, make=bootstrap.make_user, refreshed=who.users_changed),
        objects=Objects(objects),
        documents=documents,
        tokens=tokens,
        pools=pools,
        quotas=quotas,
        pending=Pending(jobs, explain=supervisor.explain, reasons=supervisor.reasons),
        topics=topics,
        stacks=StackTaker(jobs, stack_store, errands, clock),
    )
    hangs = HangWatch(
        stores.jobs,
        metric_store,
        clock,
        settings=_hang_settings(settings),
        take_stacks=services.stacks.take,
        orders_changed=engine.changed,
    )
    tallies, appender = Tallies(), Appender(metric_store)
    link = AgentLink(
        engine=engine,
        store=stores.jobs,
        append_readings=appender.append,
        wake=supervisor.wake,
        interval_seconds=settings.sample_seconds,
        errands=errands,
        note_disk=pools.note_disk,
    )
    chaos = Chaos(jobs=jobs, store=stores.jobs, errands=errands, clock=clock, enabled=settings.chaos)
    dialects = _dialects(data_dir, who, engine, link, chaos)
    app = build_app(
        dialects,
        services=services,
        allowed=who.allowed,
        ready=_readiness(settings, engine),
        pages={
            "/metrics": MetricsPage(
                Sources(
                    version=importlib.metadata.version("trackside"),
                    tallies=tallies,
                    jobs=stores.jobs,
                    metrics=metric_store,
                    clock=clock,
                    nodes=engine.nodes,
                    projects=_project_ids(stores),
                    own=_own_counts(supervisor, hangs, notifier, link, appender, metric_store),
                    sample_seconds=settings.sample_seconds,
                ),
                caller_of_token=None if _open_page(settings) else who.directory.caller_of_token,
            )
        },
        body_bytes_max=settings.body_bytes_max,
        tallies=tallies,
    )
    return Parts(
        settings,
        data_dir,
        stores,
        metric_store,
        appender,
        log_store,
        objects,
        who,
        engine,
        supervisor,
        notifier,
        hangs,
        services,
        dialects,
        app,
    )


async def run(parts: Parts, *, started: Callable[[str], None]) -> None:
    """Serve until told to stop. Jobs go on without the server."""
    await parts.stores.start()
    await bootstrap.first_identities(parts.stores.identities, parts.data_dir)
    await parts.services.pools.load()
    await parts.services.topics.load()
    await parts.access.policies.load([one for one, _ in await parts.stores.identities.projects()])
    parts.access.users_changed(await parts.stores.identities.users())
    background: list[asyncio.Task[None]] = []

    def begin(port: int) -> None:
        endpoint = _endpoint(parts.settings, port)
        bootstrap.announce(parts.data_dir, endpoint)
        parts.services.logs.endpoint = endpoint
        background.append(asyncio.create_task(parts.supervisor.run()))
        background.append(asyncio.create_task(parts.notifier.run()))
        background.append(asyncio.create_task(parts.hangs.run()))
        if parts.settings.run_agent:
            background.append(asyncio.create_task(_keep_agent(parts)))
        started(endpoint)

    def end() -> None:
        """Let agents go and start none any more: the server is told to stop."""
        for task in background:
            task.cancel()
        parts.engine.close()

    try:
        await serve(
            parts.app,
            host=parts.settings.host,
            port=parts.settings.port,
            started=begin,
            stopping=end,
        )
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        parts.stores.close()
        parts.appender.close()
        parts.metrics.close()


async def _keep_agent(parts: Parts) -> None:
    """See to it that this machine has an agent, for as long as the server runs."""
    while True:
        try:
            await asyncio.to_thread(
                ensure_agent,
                parts.data_dir,
                task_user=parts.settings.task_user,
                node_id=parts.settings.node_id or socket.gethostname(),
                npu_exporter_url=parts.settings.npu_exporter_url,
                dcgm_exporter_url=parts.settings.dcgm_exporter_url,
            )
        except (OSError, AgentTrouble):
            log.exception("could not start this machine's agent; trying again")
        await asyncio.sleep(AGENT_CHECK_SECONDS)


def _access(
    settings: Settings,
    stores: Stores,
    documents: Documents,
    tokens: Tokens,
    link_key: bytes,
    clock: SystemClock,
) -> Access:
    directory, policies = Directory(), Policies(documents=documents, store=stores.jobs)
    window = settings.signature_window_seconds
    temporary = TemporaryKeys(
        key=hmac.digest(link_key, b"temporary keys", "sha256"),
        now_ms=clock.now_ms,
        caller_named=policies.caller_named,
    )
    signed = Authenticator(directory, now_ms=clock.now_ms, window_seconds=window, temporary=temporary)
    acs = AcsAuthenticator(
        directory,
        nonces=Nonces(now_ms=clock.now_ms, window_seconds=window),
        temporary=temporary,
        open_token=tokens.open,
        caller_named=policies.caller_named,
        job_in_path=partial(job_in_path, stores.jobs),
        now_ms=clock.now_ms,
        window_seconds=window,
        allow_roa_sha1=settings.allow_roa_sha1,
    )
    return Access(directory, policies, temporary, signed, acs)


def _dialects(
    data_dir: Path, who: Access, engine: LocalEngine, link: AgentLink, chaos: Chaos
) -> Sequence[Dialect]:
    signed = who.signed
    agent = access.agent_authenticator(bootstrap.kept_secret(data_dir / "agent" / "token"))
    huawei = partial(Dialect, authenticate=signed, error=v2_errors.error, unexpected=v2_errors.unexpected)
    own = partial(Dialect, error=access.error, unexpected=access.unexpected)
    return (
        huawei(name="modelarts_v2", title="ModelArts v2", operations=v2.JOB_OPERATIONS),
        huawei(
            name="modelarts_v2_pools",
            title="ModelArts v2 pools",
            operations=POOL_OPERATIONS,
            error=pool_errors.error,
        ),
        Dialect(
            name="modelarts_v1",
            title="ModelArts v1",
            operations=v1.operations(engine.nodes),
            authenticate=signed,
            error=v1_errors.error,
            unexpected=v1_errors.unexpected,
        ),
        Dialect(
            name="pai_dlc",
            title="PAI-DLC",
            operations=dlc.OPERATIONS,
            authenticate=who.acs,
            error=dlc_errors.error,
            unexpected=dlc_errors.unexpected,
            request_id_header="x-acs-request-id",
        ),
        huawei(name="iam", title="Identity", operations=iam.OPERATIONS),
        own(
            name="native",
            title="Trackside",
            operations=(
                *native.operations(engine.nodes),
                *native_policies.operations(who.policies, who.temporary),
                *native_pools.OPERATIONS,
                *native_notify.OPERATIONS,
                *native_stacks.OPERATIONS,
                *native_chaos.operations(chaos),
            ),
            authenticate=signed,
        ),
        own(name="agent", title="Agents", operations=link.operations(), authenticate=agent),
        own(name="links", title="Links", operations=downloads.OPERATIONS, authenticate=downloads.link_holder),
    )


def _hang_settings(settings: Settings) -> HangSettings:
    return HangSettings(
        period_seconds=settings.hang_check_seconds,
        window_seconds=settings.hang_window_seconds or None,
        sample_seconds=settings.sample_seconds,
    )


def _readiness(settings: Settings, engine: LocalEngine) -> Callable[[], Awaitable[str | None]]:
    async def ready() -> str | None:
        if settings.run_agent and not engine.nodes():
            return "waiting for this machine's agent"
        return None

    return ready


def _endpoint(settings: Settings, port: int) -> str:
    if settings.endpoint:
        return settings.endpoint.rstrip("/")
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _objects(settings: Settings, data_dir: Path) -> ObjectStore:
    s3 = settings.object_store
    place = data_dir / "agent" / "object_store.json"  # where this machine's agent looks for it
    if s3 is None:
        place.unlink(missing_ok=True)
        return open_objects(data_dir / "obs")
    bootstrap.write_private(place, msgspec.json.encode(s3).decode())
    secret_key = Path(s3.secret_key_file).read_text().strip()
    return open_s3(s3.endpoint, s3.access_key, secret_key, s3.region)


def _mailer(settings: Settings) -> Mailer | None:
    if not settings.smtp_url:
        return None
    password = None
    if settings.smtp_password_file:
        try:
            password = Path(settings.smtp_password_file).read_text().strip()
        except OSError as error:
            raise Invalid(f"smtp_password_file cannot be read: {error.strerror}") from None
    return Mailer(mail_server(settings.smtp_url, sender=settings.smtp_from, password=password))


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


def _metric_store(settings: Settings, data_dir: Path) -> "EmbeddedMetricStore | PrometheusMetricStore":
    if not settings.metrics_url:
        return EmbeddedMetricStore(
            data_dir / "metrics.db",
            raw_days=settings.metrics_raw_days,
            rollup_days=settings.metrics_rollup_days,
        )
    try:
        from trackside.metricstore.prometheus import PrometheusMetricStore
    except ModuleNotFoundError as error:
        raise Invalid(f"metrics_url needs {error.name}: pip install 'trackside[prometheus]'") from None
    return PrometheusMetricStore(
        settings.metrics_url,
        data_dir / "metrics-queue.db",
        queue_bytes_max=settings.metrics_queue_bytes_max,
    )


def _own_counts(
    supervisor: Supervisor,
    hangs: HangWatch,
    notifier: Notifier,
    link: AgentLink,
    appender: Appender,
    store: "EmbeddedMetricStore | PrometheusMetricStore",
) -> Mapping[str, Counted]:
    return {
        "trackside_supervise_failures": lambda: supervisor.failures + hangs.failures,
        "trackside_reports_applied": lambda: link.reports_applied,
        "trackside_samples_appended": lambda: appender.appended,
        "trackside_samples_dropped": lambda: store.dropped,
        "trackside_notifications_sent": lambda: notifier.sent,
        "trackside_notifications_given_up": lambda: notifier.given_up,
        "trackside_metric_blocks_damaged": lambda: getattr(store, "damaged", None),
        "trackside_metric_queue_bytes": lambda: getattr(store, "queued_bytes", None),
    }


def _project_ids(stores: Stores) -> Callable[[], Awaitable[Sequence[ProjectId]]]:
    async def projects() -> Sequence[ProjectId]:
        return [project_id for project_id, _ in await stores.identities.projects()]

    return projects


def _open_page(settings: Settings) -> bool:
    if settings.metrics_page:
        return settings.metrics_page == "open"
    try:
        return ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        return settings.host == "localhost"


def _forgetter(
    data_dir: Path, stores: Stores, metrics: MetricStore, logs: FileLogs
) -> Callable[[Job], Awaitable[None]]:
    async def forget(job: Job) -> None:
        await asyncio.to_thread(metrics.forget, job.id)
        await logs.forget(job.id)
        await asyncio.to_thread(shutil.rmtree, data_dir / "work" / job.id, ignore_errors=True)
        await stores.jobs.delete(job.id)

    return forget
