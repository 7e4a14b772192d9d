"""Where things are kept: opens the stores that the settings name."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trackside import bootstrap
from trackside.config import Settings
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.logstore.files import FileLogs
from trackside.logstore.stacks import FileStacks
from trackside.metricstore.appender import Appender
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.objectstore.local import open_objects
from trackside.objectstore.s3 import open_s3
from trackside.persistence.stores import Stores, open_stores
from trackside.ports import ObjectStore

if TYPE_CHECKING:
    from trackside.metricstore.prometheus import PrometheusMetricStore


@dataclass(frozen=True, slots=True)
class Places:
    """Everything that is kept on disk or by another server."""

    data_dir: Path
    stores: Stores
    metrics: "EmbeddedMetricStore | PrometheusMetricStore"
    appender: Appender
    logs: FileLogs
    stacks: FileStacks
    objects: ObjectStore

    async def forget(self, job: Job) -> None:
        """Remove all that is kept of a job; its own row last, so that a crash leaves nothing unfound."""
        await asyncio.to_thread(self.metrics.forget, job.id)
        await self.logs.forget(job.id)
        await asyncio.to_thread(shutil.rmtree, self.data_dir / "work" / job.id, ignore_errors=True)
        await self.stores.jobs.delete(job.id)

    def close(self) -> None:
        """Let go of the files."""
        self.stores.close()
        self.appender.close()
        self.metrics.close()


def open_places(settings: Settings) -> Places:
    """Open what the settings name, below the data directory unless they say otherwise."""
    data_dir = Path(settings.data_dir).expanduser().resolve()
    bootstrap.prepare(data_dir)
    metrics = _metric_store(settings, data_dir)
    return Places(
        data_dir=data_dir,
        stores=open_stores(settings.database_url or f"sqlite:///{data_dir / 'trackside.db'}"),
        metrics=metrics,
        appender=Appender(metrics),
        logs=FileLogs(data_dir / "logs"),
        stacks=FileStacks(data_dir / "logs"),
        objects=_objects(settings, data_dir),
    )


def _objects(settings: Settings, data_dir: Path) -> ObjectStore:
    s3 = settings.object_store
    place = data_dir / "agent" / "object_store.json"  # where this machine's agent looks for it
    if s3 is None:
        place.unlink(missing_ok=True)
        return open_objects(data_dir / "obs")
    bootstrap.write_private(place, msgspec.json.encode(s3).decode())
    secret_key = Path(s3.secret_key_file).read_text().strip()
    return open_s3(s3.endpoint, s3.access_key, secret_key, s3.region)


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
