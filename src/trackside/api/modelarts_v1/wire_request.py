"""Knows the bodies that ModelArts v1 operations take; refuses to know what any of it means.

Optional fields take null as absent. Fields the vendor may add later are passed over, not refused. Whole
numbers may also come as text, as they do in the vendor's own samples.
"""

from typing import Annotated

from msgspec import Meta, Struct

NODES_MAX = 1024
PARAMETERS_MAX = 500
SOURCES_MAX = 40
LONG_MAX = 2**53
DATA_TYPES = ("obs", "dataset")

Text = Annotated[str, Meta(max_length=4096)]
Command = Annotated[str, Meta(max_length=32_000)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[0-9A-Za-z_-]+$")]
Description = Annotated[str, Meta(max_length=256)]
WorkspaceId = Annotated[str, Meta(max_length=64)]
Digits = Annotated[str, Meta(pattern="^[0-9]{0,15}$")]
Long = Annotated[int, Meta(ge=0, le=LONG_MAX)]
NodeCount = Annotated[int, Meta(ge=1, le=NODES_MAX)]
Label = Annotated[str, Meta(min_length=1, max_length=256, pattern="^[^\\s=]+$")]


class Wire(Struct, omit_defaults=True):
    """A JSON object of the dialect; what is None is left out."""


class Parameter(Wire):
    """One running parameter: an argument of the boot file, or a variable in a custom image."""

    label: Label | None = None
    value: Annotated[str, Meta(max_length=8192)] | int | float | bool | None = None


class DataSource(Wire):
    """One place that data comes from."""

    type: Annotated[str, Meta(extra_json_schema={"enum": [*DATA_TYPES, ""]})] | None = None
    data_url: Text | None = None
    dataset_id: Text | None = None
    dataset_version: Text | None = None


class NfsVolume(Wire):
    """Name a shared directory."""

    id: Text | None = None
    src_path: Text | None = None
    dest_path: Text | None = None
    read_only: bool | None = None


class HostPathVolume(Wire):
    """Name a directory of the machine."""

    src_path: Text | None = None
    dest_path: Text | None = None
    read_only: bool | None = None


class Volume(Wire):
    """Name something to mount."""

    nfs: NfsVolume | None = None
    host_path: HostPathVolume | None = None


class FlavorChoice(Wire):
    """Name a size by its code."""

    code: Text | None = None


class Settings(Wire):
    """Say what runs, with which data, on how much: what jobs, versions and configurations share."""

    worker_server_num: NodeCount | Digits | None = None
    app_url: Text | None = None
    boot_file_url: Text | None = None
    parameter: Annotated[list[Parameter], Meta(max_length=PARAMETERS_MAX)] | None = None
    data_url: Text | None = None
    dataset_id: Text | None = None
    dataset_version_id: Text | None = None
    data_source: Annotated[list[DataSource], Meta(max_length=SOURCES_MAX)] | None = None
    spec_id: Long | Text | None = None
    spec_code: Text | None = None
    flavor: FlavorChoice | None = None
    engine_id: Long | Text | None = None
    model_id: Long | Digits | None = None
    train_url: Text | None = None
    log_url: Text | None = None
    user_image_url: Text | None = None
    user_command: Command | None = None
    volumes: Annotated[list[Volume], Meta(max_length=SOURCES_MAX)] | None = None
    pool_id: Text | None = None


class JobConfig(Settings):
    """The `config` of a job or of a version of it."""

    create_version: bool | None = None
    pre_version_id: Long | Digits | None = None
    nas_type: Text | None = None
    nas_share_addr: Text | None = None
    nas_mount_path: Text | None = None


class CreateJobBody(Wire):
    """Ask for a job."""

    job_name: Name
    config: JobConfig
    job_desc: Description | None = None
    workspace_id: WorkspaceId | None = None


class CreateVersionBody(Wire):
    """Ask for a version of a job."""

    config: JobConfig
    job_desc: Description | None = None


class ChangeJobBody(Wire):
    """Describe a job anew."""

    job_desc: Description


class ChangeConfigBody(Settings):
    """Write a job configuration anew."""

    config_desc: Description | None = None


class CreateConfigBody(Settings, kw_only=True):
    """Keep a job configuration."""

    config_name: Name
    config_desc: Description | None = None
