"""The composition root: the only place that builds concrete classes and knows them all."""

import asyncio
import importlib.metadata
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trackside import bootstrap
from trackside.agent.control import AgentTrouble, ensure_agent
from trackside.api import native
from trackside.api.app import App, build_app
from trackside.api.exposition import Counted, MetricsPage, Sources
from trackside.api.modelarts_v2 import notification
from trackside.api.native.agent_link import AgentLink
from trackside.api.operation import Dialect
from trackside.api.server import serve
from trackside.api.tally import Tallies
from trackside.clock import SystemClock
from trackside.config import Settings
from trackside.domain.errors import Invalid
from trackside.domain.job import ProjectId
from trackside.domain.reach import reach_of
from trackside.engine.local import LocalEngine
from trackside.notify.mail import Mailer, mail_server
from trackside.notify.notifier import Notifier
from trackside.notify.route import Route
from trackside.notify.sender import Sender
from trackside.persistence.stores import Stores
from trackside.ports import Clock
from trackside.service import (
    Attempts,
    Documents,
    Logs,
    Metrics,
    Objects,
    Pending,
    Services,
    StackTaker,
    Tokens,
    Topics,
    Users,
)
from trackside.service.chaos import Chaos
from trackside.supervise.hang import HangSettings, HangWatch
from trackside.wiring.doors import Access, build_access, build_dialects
from trackside.wiring.places import Places, open_places
from trackside.wiring.work import Work, build_work

log = logging.getLogger(__name__)
AGENT_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a running server is made of."""

    settings: Settings
    places: Places
    work: Work
    access: Access
    notifier: Notifier
    route: Route
    hangs: HangWatch
    services: Services
    dialects: Sequence[Dialect]
    app: App


def build(settings: Settings) -> Parts:
    """Put a server together; nothing runs yet."""
    clock = SystemClock()
    places = open_places(settings)
    work = build_work(settings, places, clock)
    link_key = bootstrap.kept_secret(places.data_dir / "link.key").encode()
    documents, tokens = Documents(places.stores.documents), Tokens(key=link_key, clock=clock)
    access = build_access(settings, places.stores, documents, tokens, link_key, clock)
    route = Route(reach_of(settings.notify_hosts))
    services, notifier = _services(settings, places, work, access, documents, tokens, link_key, route, clock)
    hangs = HangWatch(
        places.stores.jobs,
        places.metrics,
        clock,
        settings=_hang_settings(settings),
        take_stacks=services.stacks.take,
        orders_changed=work.engine.changed,
    )
    link = AgentLink(
        engine=work.engine,
        store=places.stores.jobs,
        append_readings=places.appender.append,
        wake=work.supervisor.wake,
        interval_seconds=settings.sample_seconds,
        errands=work.errands,
        note_disk=work.pools.note_disk,
    )
    chaos = Chaos(
        jobs=work.jobs, store=places.stores.jobs, errands=work.errands, clock=clock, enabled=settings.chaos
    )
    dialects = build_dialects(places.data_dir, access, work.engine, link, chaos)
    tallies = Tallies()
    own = _own_counts(work, hangs, notifier, link, places)
    app = build_app(
        dialects,
        services=services,
        allowed=access.allowed,
        ready=_readiness(settings, work.engine),
        pages={"/metrics": _metrics_page(settings, places, work.engine, access, tallies, own, clock)},
        tallies=tallies,
    )
    return Parts(settings, places, work, access, notifier, route, hangs, services, dialects, app)


def _services(
    settings: Settings,
    places: Places,
    work: Work,
    access: Access,
    documents: Documents,
    tokens: Tokens,
    link_key: bytes,
    route: Route,
    clock: Clock,
) -> tuple[Services, Notifier]:
    jobs = work.jobs
    endpoint = _endpoint(settings, settings.port)
    logs = Logs(jobs, places.logs, clock=clock, endpoint=endpoint, link_key=link_key)
    sender = Sender(
        clock=clock,
        mailer=_mailer(settings),
        route=route,
        link=lambda job_id: f"{logs.endpoint}{native.PREFIX}/jobs/{job_id}",
    )
    topics = Topics(store=places.stores.topics, clock=clock, sender=sender, asked=notification.asked_of)
    notifier = Notifier(
        places.stores.outbox,
        sender,
        clock,
        topics=topics.all,
        recipients=topics.recipients,
        tell=places.stores.jobs.add_events,
    )
    metrics = Metrics(jobs, places.metrics, clock)
    make = bootstrap.make_user
    services = Services(
        jobs=jobs,
        attempts=Attempts(jobs, places.logs, places.stacks, metrics, clock=clock),
        metrics=metrics,
        logs=logs,
        catalog=work.catalog,
        users=Users(store=places.stores.identities, make=make, refreshed=access.users_changed),
        objects=Objects(places.objects),
        documents=documents,
        tokens=tokens,
        pools=work.pools,
        quotas=work.quotas,
        pending=Pending(jobs, explain=work.supervisor.explain, reasons=work.supervisor.reasons),
        topics=topics,
        stacks=StackTaker(jobs, places.stacks, work.errands, clock),
    )
    return services, notifier


def _metrics_page(
    settings: Settings,
    places: Places,
    engine: LocalEngine,
    access: Access,
    tallies: Tallies,
    own: Mapping[str, Counted],
    clock: Clock,
) -> MetricsPage:
    sources = Sources(
        version=importlib.metadata.version("trackside"),
        tallies=tallies,
        jobs=places.stores.jobs,
        metrics=places.metrics,
        clock=clock,
        nodes=engine.nodes,
        projects=_project_ids(places.stores),
        own=own,
        sample_seconds=settings.sample_seconds,
    )
    caller_of_token = None if _open_page(settings) else access.directory.caller_of_token
    return MetricsPage(sources, caller_of_token=caller_of_token)


async def run(parts: Parts, *, started: Callable[[str], None]) -> None:
    """Serve until told to stop. Jobs go on without the server."""
    await parts.places.stores.start()
    await bootstrap.first_identities(parts.places.stores.identities, parts.places.data_dir)
    await parts.services.pools.load()
    await parts.services.topics.load()
    await parts.access.policies.load([one for one, _ in await parts.places.stores.identities.projects()])
    parts.access.users_changed(await parts.places.stores.identities.users())
    background: list[asyncio.Task[None]] = []

    def begin(port: int) -> None:
        endpoint = _endpoint(parts.settings, port)
        bootstrap.announce(parts.places.data_dir, endpoint)
        parts.services.logs.endpoint = endpoint
        parts.route.own_port = port
        background.append(asyncio.create_task(parts.work.supervisor.run()))
        background.append(asyncio.create_task(parts.notifier.run()))
        background.append(asyncio.create_task(parts.hangs.run()))
        if parts.settings.run_agent:
            background.append(asyncio.create_task(_keep_agent(parts)))
        started(endpoint)

    def end() -> None:
        """Let agents go and start none any more: the server is told to stop."""
        for task in background:
            task.cancel()
        parts.work.engine.close()

    try:
        await serve(
            parts.app,
            host=parts.settings.host,
            port=parts.settings.port,
            started=begin,
            stopping=end,
            body_bytes_max=parts.settings.body_bytes_max,
        )
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        parts.places.close()


async def _keep_agent(parts: Parts) -> None:
    """See to it that this machine has an agent, for as long as the server runs."""
    while True:
        try:
            await asyncio.to_thread(
                ensure_agent,
                parts.places.data_dir,
                task_user=parts.settings.task_user,
                node_id=parts.settings.node_id or socket.gethostname(),
                npu_exporter_url=parts.settings.npu_exporter_url,
                dcgm_exporter_url=parts.settings.dcgm_exporter_url,
            )
        except (OSError, AgentTrouble):
            log.exception("could not start this machine's agent; trying again")
        await asyncio.sleep(AGENT_CHECK_SECONDS)


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


def _own_counts(
    work: Work, hangs: HangWatch, notifier: Notifier, link: AgentLink, places: Places
) -> Mapping[str, Counted]:
    store = places.metrics
    return {
        "trackside_supervise_failures": lambda: work.supervisor.failures + hangs.failures,
        "trackside_reports_applied": lambda: link.reports_applied,
        "trackside_samples_appended": lambda: places.appender.appended,
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
