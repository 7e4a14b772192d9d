"""Knows what a v1 job's config asks for in Trackside's words; refuses to know how it will run."""

import posixpath
from collections.abc import Iterator

import msgspec

from trackside.api.modelarts_v1.sizes import flavor_of, runtime_of
from trackside.api.modelarts_v1.wire_request import DATA_TYPES, JobConfig, Parameter, Settings
from trackside.domain.errors import Invalid
from trackside.domain.fault import HangPolicy
from trackside.domain.job import DEFAULT_POOL, Channel, JobSpec, Role
from trackside.service.catalog import Catalog

DIALECT = "modelarts_v1"
INPUT_NAME, OUTPUT_NAME = "data_url", "train_url"
NODES_MAX = 1024


def to_spec(
    config: JobConfig, catalog: Catalog, *, name: str, description: str = "", workspace_id: str = "0"
) -> JobSpec:
    """Return what a config asks for, or say which field cannot be."""
    check_settings(config)
    parameters = tuple((item.label, value_text(item)) for item in config.parameter or () if item.label)
    in_image = bool(config.user_image_url)  # there, parameters are variables of the container
    flavor = flavor_of(config, catalog)
    return JobSpec(
        name=name,
        description=description,
        workspace_id=workspace_id,
        roles=(Role(count=node_count(config), resources=flavor.resources, flavor_id=flavor.id),),
        command=config.user_command or None,
        code_dir=place(config.app_url),
        boot_file=None if config.user_command else _boot_file(config),
        parameters=() if in_image else parameters,
        environments=dict(parameters) if in_image else {},
        inputs=tuple(_inputs(config)),
        outputs=(Channel(name=OUTPUT_NAME, url=url),) if (url := place(config.train_url)) else (),
        runtime=runtime_of(config, catalog),
        pool_id=config.pool_id or DEFAULT_POOL,
        log_export_url=place(config.log_url),
        hang=HangPolicy(),
        declared={DIALECT: msgspec.to_builtins(config)},
    )


def check_settings(settings: Settings) -> None:
    """Refuse what is not offered here and what cannot be together."""
    if settings.model_id and int(settings.model_id):
        raise Invalid(
            "model_id names a built-in algorithm, and there are none here; "
            "use app_url with boot_file_url, or user_command"
        )
    if settings.dataset_id or settings.dataset_version_id or any(_of_dataset(settings)):
        raise Invalid(
            "datasets are kept by dataset management, which is not offered here; "
            "use data_url, or data_source of type obs with a data_url"
        )
    if settings.data_url and settings.data_source:
        raise Invalid("give either data_url or data_source, not both")
    if not settings.user_command and not settings.boot_file_url:
        raise Invalid("say what to run: app_url with boot_file_url, or user_command")
    if settings.boot_file_url and not settings.app_url:
        raise Invalid("boot_file_url needs app_url, the directory it lies in")
    if isinstance(settings, JobConfig) and settings.create_version is False:
        raise Invalid("create_version must be true: a job without a version is a configuration here")
    node_count(settings)


def node_count(settings: Settings) -> int:
    """Return how many workers are asked for; 1 when it is not said."""
    count = int(settings.worker_server_num or 1)
    if not 1 <= count <= NODES_MAX:
        raise Invalid(f"worker_server_num must be from 1 to {NODES_MAX}, not {count}")
    return count


def place(given: str | None) -> str | None:
    """Return a place in the object store as obs://bucket/key; the vendor also writes /bucket/key."""
    if not given:
        return None
    return f"obs:/{given}" if given.startswith("/") and not given.startswith("//") else given


def value_text(item: Parameter) -> str:
    """Return a parameter's value as it is handed on."""
    if item.value is None:
        return ""
    return item.value if isinstance(item.value, str) else msgspec.json.encode(item.value).decode()


def _of_dataset(settings: Settings) -> Iterator[bool]:
    for index, source in enumerate(settings.data_source or ()):
        if source.type and source.type not in DATA_TYPES:
            raise Invalid(f"data_source[{index}].type must be one of [{' '.join(DATA_TYPES)}]")
        yield bool(source.dataset_id or source.dataset_version or source.type == "dataset")


def _inputs(settings: Settings) -> Iterator[Channel]:
    """Yield the inputs: data_url, and data_url_1, data_url_2 … where there are more."""
    urls = [settings.data_url] if settings.data_url else [s.data_url for s in settings.data_source or ()]
    for index, given in enumerate(urls):
        url = place(given)
        if url is None:
            raise Invalid(f"data_source[{index}].data_url is missing")
        yield Channel(name=f"{INPUT_NAME}_{index}" if index else INPUT_NAME, url=url)


def _boot_file(settings: Settings) -> str | None:
    """Return the boot file as a path below app_url; it may be given whole or already relative."""
    boot, code = place(settings.boot_file_url), place(settings.app_url)
    if boot is None or code is None:
        return None
    if "://" in boot:
        base = code.rstrip("/") + "/"
        if not boot.startswith(base):
            raise Invalid("boot_file_url must lie below app_url")
        boot = boot[len(base) :]
    path = posixpath.normpath(boot)
    if path in (".", "..") or path.startswith("../") or boot.endswith("/"):
        raise Invalid("boot_file_url must name a file below app_url")
    return path
