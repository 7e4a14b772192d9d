"""Knows how DataSources become inputs and outputs; refuses the vendor's data and code management."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trackside.api.pai_dlc.checks import one_of
from trackside.api.pai_dlc.wire_create import MOUNT_ACCESSES, CodeSource, DataSource
from trackside.domain.errors import Invalid
from trackside.domain.job import Access, Channel

DEFAULT_ACCESS = "RW"  # what the vendor's mount of a bucket allows
_SCHEMES = re.compile(r"(?:oss|obs|s3)://")
_VENDOR_HOST = re.compile(r"(oss://)([^./]+)\.[^/]*aliyuncs\.com(?=/|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Data a job wants at a path."""

    name: str  # of the variable that says where it is
    url: str
    path: str | None
    writable: bool


def to_mounts(sources: Sequence[DataSource]) -> tuple[Mount, ...]:
    """Return what the data sources ask for."""
    return tuple(_mount(source, index) for index, source in enumerate(sources))


def to_inputs(mounts: Sequence[Mount], absent: Collection[str]) -> tuple[Channel, ...]:
    """Return what is fetched before the start; writable places that do not exist yet are left out."""
    return tuple(
        Channel(name=mount.name, url=mount.url, local_dir=mount.path, access=Access.ENV)
        for mount in mounts
        if not (mount.writable and mount.url in absent)
    )


def to_outputs(mounts: Sequence[Mount]) -> tuple[Channel, ...]:
    """Return what is stored again while the job runs and when it ends."""
    return tuple(
        Channel(
            name=f"{mount.name}_OUT",
            url=mount.url,
            # Without a path both would get one of their own; the output must be the input's.
            local_dir=mount.path or f"/mnt/{mount.name.lower()}",
            access=Access.ENV,
        )
        for mount in mounts
        if mount.writable
    )


def check_code(source: CodeSource | None) -> None:
    """Refuse code that only the vendor's code management knows."""
    if source and source.code_source_id:
        raise Invalid(
            "CodeSource.CodeSourceId names a code source of the cloud, which is not offered here; put the "
            "code into the object store and name it in DataSources[].Uri"
        )


def _mount(source: DataSource, index: int) -> Mount:
    field = f"DataSources[{index}]"
    if source.data_source_id:
        raise Invalid(
            f"{field}.DataSourceId names a dataset of the cloud, which is not offered here; use {field}.Uri "
            "with oss://bucket/path"
        )
    if not source.uri:
        raise Invalid(f"{field}.Uri is missing: name a place such as oss://bucket/path/")
    if not _SCHEMES.match(source.uri):
        raise Invalid(
            f"{field}.Uri must begin with oss://, not {source.uri[:64]!r}: only objects are mounted"
        )
    access = one_of(f"{field}.MountAccess", source.mount_access or DEFAULT_ACCESS, MOUNT_ACCESSES)
    name = f"DATA_SOURCE_{index}"
    writable = access == "RW"
    return Mount(
        name=name,
        url=_VENDOR_HOST.sub(r"\1\2", source.uri),
        path=source.mount_path or (f"/mnt/{name.lower()}" if writable else None),
        writable=writable,
    )
