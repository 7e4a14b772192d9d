"""Knows every setting of the server, read once into one frozen value. docs/configuration.md lists them."""

import os
from pathlib import Path
from typing import Any

import msgspec

from trackside.domain.errors import Invalid
from trackside.domain.pool import QueuePolicy
from trackside.domain.reach import reach_of
from trackside.domain.resources import GIB, Accelerator, Flavor, Resources
from trackside.domain.runtime import Runtime

DEFAULT_PORT = 8470
METRICS_QUEUE_BYTES_MIN = 1024 * 1024
METRICS_DAYS_MAX = 36_500


class FlavorSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A size of task that jobs may ask for by name."""

    id: str
    name: str = ""
    cpu_cores: float
    memory_gib: float
    gpus: int = 0
    npus: int = 0
    card_model: str | None = None
    nodes_max: int = 64

    def to_flavor(self) -> Flavor:
        """Return the flavor this describes."""
        family = Accelerator.GPU if self.gpus else Accelerator.NPU if self.npus else Accelerator.NONE
        resources = Resources(
            cpu_cores=self.cpu_cores,
            memory_bytes=int(self.memory_gib * GIB),
            cards=self.gpus or self.npus,
            accelerator=family,
            card_model=self.card_model,
        )
        return Flavor(id=self.id, name=self.name or self.id, resources=resources, nodes_max=self.nodes_max)


class EngineSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An environment that an engine id or an image stands for."""

    id: str
    name: str = ""
    version: str = ""
    images: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    environment: dict[str, str] = {}

    def to_runtime(self) -> Runtime:
        """Return the runtime this describes."""
        return Runtime(
            id=self.id,
            name=self.name or self.id,
            version=self.version or self.id,
            images=self.images,
            path_prefix=self.path,
            environment=tuple(self.environment.items()),
        )


class S3Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An S3-compatible store that holds obs:// instead of the embedded directory."""

    endpoint: str
    access_key: str
    secret_key_file: str
    region: str = "us-east-1"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting, with its default."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data_dir: str = ""  # ~/.trackside, or TRACKSIDE_DATA_DIR
    database_url: str = ""  # empty: a SQLite file in the data directory
    endpoint: str = ""  # how clients reach the server; empty: http://HOST:PORT
    task_user: str = "nobody"  # who tasks run as when the server is root
    sample_seconds: float = 5.0
    metrics_raw_days: float = 15  # how long samples are kept as they came
    metrics_rollup_days: float = 400  # how long their one-minute means, extremes and counts are kept
    hang_check_seconds: float = 60.0  # how often running jobs are looked at for hangs
    hang_window_seconds: int = 0  # in place of what every job asks for, to rehearse; 0: what they ask for
    stop_grace_seconds: float = 30.0  # what tasks get between TERM and KILL
    run_agent: bool = True  # keep an agent running on this machine
    node_id: str = ""  # empty: the machine's name
    npu_exporter_url: str = ""  # this machine's npu-exporter; empty: npu-smi is asked, where it is there
    dcgm_exporter_url: str = ""  # this machine's dcgm-exporter, beside NVML
    metrics_url: str = ""  # a Prometheus-compatible store of samples; empty: a file in the data directory
    metrics_queue_bytes_max: int = 256 * 1024 * 1024  # what may wait on disk for that store
    metrics_page: str = ""  # who may read /metrics: open or token; empty: open on loopback, else token
    smtp_url: str = ""  # smtp://user@host:587 or smtps://user@host; empty: no mail is sent
    smtp_from: str = ""  # the address mail comes from
    smtp_password_file: str = ""
    notify_hosts: tuple[str, ...] = ()  # hosts and networks that webhooks may be at; empty: anywhere
    flavors: tuple[FlavorSetting, ...] = ()
    engines: tuple[EngineSetting, ...] = ()
    queue_policy: str = "fifo"  # of the pool `default`, until it is given another
    images: str = "lenient"  # or strict: refuse images no engine stands for
    object_store: S3Setting | None = None
    signature_window_seconds: int = 900
    allow_roa_sha1: bool = True  # signatures of older PAI-DLC SDKs, which do not cover the body
    body_bytes_max: int = 8 * 1024 * 1024
    chaos: bool = False  # let admins make faults on purpose


def load_settings(file: Path | None, **overrides: Any) -> Settings:
    """Return the settings of a TOML or YAML file, with what was given on the command line over them."""
    values = _read(file) if file else {}
    values.update({name: value for name, value in overrides.items() if value is not None})
    values.setdefault("data_dir", os.environ.get("TRACKSIDE_DATA_DIR") or str(Path.home() / ".trackside"))
    try:
        settings = msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise Invalid(f"the configuration is not valid: {error}") from None
    _check(settings)
    return settings


def _read(file: Path) -> dict[str, Any]:
    decode = msgspec.toml.decode if file.suffix == ".toml" else msgspec.yaml.decode
    try:
        found = decode(file.read_bytes())
    except OSError as error:
        raise Invalid(f"cannot read the configuration {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise Invalid(f"the configuration {file} cannot be read: {error}") from None
    if found is not None and not isinstance(found, dict):
        raise Invalid(f"the configuration {file} must be a table of settings")
    return dict(found or {})


def _check(settings: Settings) -> None:
    if not 0 <= settings.port <= 65_535:
        raise Invalid(f"port must be 0 to 65535, not {settings.port}")
    if not 1 <= settings.sample_seconds <= 60:
        raise Invalid(f"sample_seconds must be 1 to 60, not {settings.sample_seconds:g}")
    if not 0 < settings.metrics_raw_days <= settings.metrics_rollup_days <= METRICS_DAYS_MAX:
        raise Invalid(
            "metrics_raw_days must be more than 0 and at most metrics_rollup_days, and that at most"
            f" {METRICS_DAYS_MAX:,}; they are {settings.metrics_raw_days:g}"
            f" and {settings.metrics_rollup_days:g}"
        )
    _check_hangs(settings)
    if not 0 <= settings.stop_grace_seconds <= 3600:
        raise Invalid(f"stop_grace_seconds must be 0 to 3600, not {settings.stop_grace_seconds:g}")
    for name in ("npu_exporter_url", "dcgm_exporter_url"):
        url = getattr(settings, name)
        if url and not url.startswith("http://"):
            raise Invalid(f"{name} must begin with http://, not {url!r}")
    if settings.metrics_queue_bytes_max < METRICS_QUEUE_BYTES_MIN:
        raise Invalid(f"metrics_queue_bytes_max must be {METRICS_QUEUE_BYTES_MIN:,} or more")
    if settings.metrics_page not in ("", "open", "token"):
        raise Invalid(f"metrics_page must be open or token, not {settings.metrics_page!r}")
    if bool(settings.smtp_url) != bool(settings.smtp_from):
        raise Invalid(
            "smtp_url and smtp_from go together: where mail is sent through, and from whom it comes"
        )
    reach_of(settings.notify_hosts)
    if settings.queue_policy not in tuple(QueuePolicy):
        names = ", ".join(QueuePolicy)
        raise Invalid(f"queue_policy must be one of {names}, not {settings.queue_policy!r}")
    if settings.images not in ("lenient", "strict"):
        raise Invalid(f"images must be lenient or strict, not {settings.images!r}")


def _check_hangs(settings: Settings) -> None:
    if not 1 <= settings.hang_check_seconds <= 3600:
        raise Invalid(f"hang_check_seconds must be 1 to 3600, not {settings.hang_check_seconds:g}")
    if settings.hang_window_seconds and not 5 <= settings.hang_window_seconds <= 86_400:
        raise Invalid(f"hang_window_seconds must be 5 to 86400, or 0, not {settings.hang_window_seconds}")
