"""Knows where a task's code, inputs and outputs lie on its node; refuses to know how objects are stored.

The paths a job asks for are those of a vendor's container. They are mapped below the task's own directory,
so that two tasks on one node never share a path and no job can write outside its own.

Cost: every task has its own copy of the job's code and inputs, so N tasks of one job on a node take N times
their size, except where the embedded store's file system shares blocks (reflinks): there a copy is free
until it is written to.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trackside.domain.errors import ObjectNotFound, TracksideError
from trackside.domain.exchange import Launch
from trackside.domain.job import Access, Channel
from trackside.ports import ObjectStore

CONTAINER_HOME = "/home/ma-user"
CONTAINER_JOB_DIR = "/home/ma-user/modelarts/user-job-dir"
CODE_NAME_DEFAULT = "code"  # of a code_dir that is a whole bucket


class StagingError(Exception):
    """A task's code or data could not be prepared; the text is for the job's owner."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What is ready on disk, and what the task must be told of it."""

    environment: dict[str, str]
    arguments: tuple[str, ...]
    code_dir: Path | None
    boot_file: Path | None
    working_dir: Path
    outputs: dict[str, Path]  # URL -> the local directory that is uploaded to it


def stage(
    launch: Launch, *, task_dir: Path, objects: ObjectStore, owner: tuple[int, int] | None = None
) -> Staged:
    """Fetch a task's code and inputs, make its output directories, and hand all of it to `owner`.

    May be repeated after an interruption: what is there already is replaced. `task_dir` itself is handed
    over too, since a command without code runs in it; what else lies in it is left alone.
    """
    try:
        return _Staging(launch, task_dir, objects).run(owner)
    except OSError as error:
        raise StagingError(f"the task's files could not be prepared: {_why(error)}") from error


class _Staging:
    """Carry what one staging has made so far."""

    def __init__(self, launch: Launch, task_dir: Path, objects: ObjectStore) -> None:
        self._launch = launch
        self._task_dir = task_dir
        self._objects = objects
        self._made: set[str] = set()  # first components below task_dir

    def run(self, owner: tuple[int, int] | None) -> Staged:
        self._directory(PurePosixPath("tmp"))
        code_dir, job_dir = self._code()
        inputs = [(channel, self._input(channel)) for channel in self._launch.inputs]
        outputs = [(channel, self._output(channel)) for channel in self._launch.outputs]
        told = inputs + outputs
        staged = Staged(
            environment={
                **self._launch.environment,
                "MA_JOB_DIR": str(job_dir),
                **{channel.name: str(path) for channel, path in told if channel.access is Access.ENV},
            },
            arguments=self._launch.arguments
            + tuple(
                f"--{channel.name}={path}" for channel, path in told if channel.access is Access.PARAMETER
            ),
            code_dir=code_dir,
            boot_file=self._boot_file(code_dir),
            working_dir=self._working_dir(code_dir),
            outputs=_by_url(outputs),
        )
        if owner is not None:
            self._hand_over(owner)
        return staged

    def _code(self) -> tuple[Path | None, Path]:
        """Fetch the code; return its directory and the directory around it."""
        launch = self._launch
        if launch.code_url is not None:
            self._check_url(launch.code_url, "code_dir")
        if launch.local_code_dir:
            container_dir = _plain(launch.local_code_dir, "local_code_dir")
        else:
            name = _place(launch.code_url or "").partition("/")[2].rpartition("/")[2]
            container_dir = PurePosixPath(CONTAINER_JOB_DIR, name or CODE_NAME_DEFAULT)
        job_dir = self._directory(_below(container_dir).parent)
        if launch.code_url is None:
            return None, job_dir
        code_dir = self._directory(_below(container_dir))
        self._download(launch.code_url, code_dir, "code_dir")
        return code_dir, job_dir

    def _input(self, channel: Channel) -> Path:
        directory = self._channel_dir("inputs", channel)
        self._download(channel.url, directory, f"input {channel.name}")
        return directory

    def _output(self, channel: Channel) -> Path:
        self._check_url(channel.url, f"output {channel.name}")  # better refused now than after training
        return self._channel_dir("outputs", channel)

    def _check_url(self, url: str, what: str) -> None:
        try:
            self._objects.check_url(url)
        except TracksideError as error:
            raise StagingError(f"{what}: {error.detail}") from error

    def _channel_dir(self, kind: str, channel: Channel) -> Path:
        if channel.name in ("", ".", "..") or any(char in channel.name for char in "/\\=\0"):
            raise StagingError(f"{kind}: {channel.name!r} cannot be used as a name")
        if channel.local_dir:
            return self._directory(_below(_plain(channel.local_dir, f"{kind} {channel.name}: local_dir")))
        return self._directory(PurePosixPath(kind, channel.name))

    def _download(self, url: str, to: Path, what: str) -> None:
        try:
            self._objects.download(url, to)
        except ObjectNotFound as error:
            raise StagingError(f"{what}: nothing at {url}") from error
        except TracksideError as error:
            raise StagingError(f"{what}: {error.detail}") from error
        except OSError as error:
            raise StagingError(f"{what}: {url} could not be fetched: {_why(error)}") from error

    def _boot_file(self, code_dir: Path | None) -> Path | None:
        boot_file, code_url = self._launch.boot_file, self._launch.code_url
        if boot_file is None:
            return None
        missing = StagingError(f"boot file {boot_file} is not in code_dir {code_url or '(none given)'}")
        if code_dir is None or code_url is None:
            raise missing
        relative = boot_file
        if "://" in boot_file or boot_file.startswith("/"):
            code_place = _place(code_url) + "/"
            if not _place(boot_file).startswith(code_place):
                raise missing
            relative = _place(boot_file).removeprefix(code_place)
        path = code_dir / _below(_plain(relative, "boot_file"))
        if not path.is_file():
            raise missing
        return path

    def _working_dir(self, code_dir: Path | None) -> Path:
        base = code_dir or self._task_dir
        if not self._launch.working_dir:
            return base
        wanted = _plain(self._launch.working_dir, "working_dir")
        if not wanted.is_absolute():
            return self._directory(PurePosixPath(base.relative_to(self._task_dir), wanted))
        if not any(wanted.is_relative_to(root) for root in self._mapped_roots()) and os.path.isdir(wanted):
            return Path(wanted)
        return self._directory(_below(wanted))

    def _mapped_roots(self) -> Iterator[str]:
        yield CONTAINER_HOME
        if self._launch.local_code_dir:
            yield self._launch.local_code_dir
        yield from (
            channel.local_dir for channel in self._launch.inputs + self._launch.outputs if channel.local_dir
        )

    def _directory(self, relative: PurePosixPath) -> Path:
        """Make a directory below the task's own."""
        assert ".." not in relative.parts, relative
        assert not relative.is_absolute(), relative
        path = self._task_dir / relative
        path.mkdir(parents=True, exist_ok=True)
        self._made.update(relative.parts[:1])
        return path

    def _hand_over(self, owner: tuple[int, int]) -> None:
        """Change the owner of everything made here; a symlink is changed itself, never what it names."""
        os.chown(self._task_dir, *owner, follow_symlinks=False)
        for name in self._made:
            for _, directories, files, fd in os.fwalk(self._task_dir / name, follow_symlinks=False):
                os.fchown(fd, *owner)
                for entry in directories + files:
                    os.chown(entry, *owner, dir_fd=fd, follow_symlinks=False)


def _by_url(outputs: list[tuple[Channel, Path]]) -> dict[str, Path]:
    """Return where each output goes; two that would mix are refused."""
    names: dict[str, str] = {}
    for channel, _ in outputs:
        other = names.setdefault(_place(channel.url), channel.name)
        if other != channel.name:
            raise StagingError(f"outputs {other} and {channel.name} both go to {channel.url}")
    return {channel.url: path for channel, path in outputs}


def _place(url: str) -> str:
    """Return bucket/key of a URL, whichever way it is written."""
    return (url.partition("://")[2] or url.lstrip("/")).rstrip("/")


def _plain(path: str, what: str) -> PurePosixPath:
    """Return the path, or refuse one that climbs or that no file system takes."""
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise StagingError(f"{what}: {path!r} is not a plain path")
    return PurePosixPath(path)


def _below(container_path: PurePosixPath) -> PurePosixPath:
    """Return a container's path relative to the root it is mapped to."""
    return PurePosixPath(*container_path.parts[1:]) if container_path.is_absolute() else container_path


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
