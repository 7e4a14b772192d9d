"""The verb that shows everything once: a server of its own, a real two-worker job, and what is told of it."""

import importlib.util
import signal
import sys
import time
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import Session, verb

BUCKET = "demo"
CODE_KEY = "code"
POLL_SECONDS = 0.3
JOB_SECONDS_MAX = 600.0


@verb
def demo(
    session: Session,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where it keeps everything.")
    ] = Path(".demo"),
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port (8470, or any if that is taken).")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=16, help="How many workers train.")] = 2,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=3600, help="Train at least so long.")
    ] = 15.0,
    once: Annotated[
        bool, typer.Option("--once", help="End after the job instead of waiting for Ctrl+C.")
    ] = False,
) -> None:
    """Start a server, train a small two-worker job on it, and show what it tells."""
    from trackside.cli.demo_server import DemoServer

    if importlib.util.find_spec("numpy") is None:
        raise CliError(
            "the demo trains with NumPy, which is not installed",
            code=ExitCode.REFUSED,
            hint=f"{sys.executable} -m pip install numpy",
        )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminated)
    stay = session.terminal and not once
    with DemoServer(session, data_dir.expanduser().absolute()) as server:
        server.start(port)
        code = _show(session, server.data_dir, workers=workers, seconds=seconds)
        if stay:
            _stay(session)
    raise typer.Exit(code)


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # by way of leaving the server, which takes everything down


def _show(session: Session, data_dir: Path, *, workers: int, seconds: float) -> int:
    from trackside.cli.describe import show_job
    from trackside.cli.follow import CODE_OF_PHASE, last_words

    _upload(session)
    name = f"demo-{time.strftime('%H%M%S', time.gmtime())}"
    made = session.api.create(job_body(name, workers=workers, seconds=seconds))
    job_id = str(made["metadata"]["id"])
    session.talk(f"Submitted {name} ({job_id[:8]}) through the ModelArts v2 API: {workers} workers, train.py")
    job = _follow(session, job_id)
    session.talk("")
    show_job(session, job)
    code = CODE_OF_PHASE.get(job.phase, ExitCode.UNEXPECTED)
    if code is not ExitCode.DONE:
        last_words(session, job)
        return code
    _metrics(session, job_id)
    _output(session, data_dir, name)
    session.talk("\nThe same through the official SDK, unmodified (pip install huaweicloudsdkmodelarts):\n")
    session.out(sdk_snippet(data_dir / "credentials.json", job_id))
    return code


def job_body(name: str, *, workers: int, seconds: float) -> dict[str, Any]:
    """Return the create body, as the SDK would send it."""
    return {
        "kind": "job",
        "metadata": {"name": name, "description": "Two spirals, one network, several workers"},
        "algorithm": {
            "code_dir": f"obs://{BUCKET}/{CODE_KEY}/",
            "boot_file": "train.py",
            "parameters": [{"name": "steps", "value": "1000"}, {"name": "seconds", "value": f"{seconds:g}"}],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": _output_url(name)}}}],
            "environments": {"PYTHONUNBUFFERED": "1"},
        },
        "spec": {
            "resource": {
                "node_count": workers,
                "main_container_customized_flavor": {"cpu_core_num": 0.5, "mem_size": 0.5},
            }
        },
    }


def sdk_snippet(credentials: Path, job_id: str) -> str:
    """Return a runnable script that reads the job with the official SDK."""
    return f"""\
import json
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkmodelarts.v1 import ModelArtsClient, ShowTrainingJobDetailsRequest

keys = json.load(open("{credentials}"))
client = (
    ModelArtsClient.new_builder()
    .with_credentials(BasicCredentials(keys["access_key"], keys["secret_key"], keys["project_id"]))
    .with_endpoint(keys["endpoint"])
    .build()
)
print(client.show_training_job_details(ShowTrainingJobDetailsRequest("{job_id}")).status)"""


def _upload(session: Session) -> None:
    from trackside.cli.upload import put_tree

    script = files("trackside.cli") / "demo_job" / "train.py"
    put_tree(session.api, BUCKET, CODE_KEY, {"train.py": script.read_bytes()})
    session.talk(f"Uploaded train.py to obs://{BUCKET}/{CODE_KEY}/")


def _follow(session: Session, job_id: str) -> Any:
    """Tell the job's changes and the lines of its first worker until it is over."""
    from trackside.cli.follow import describe
    from trackside.cli.words import clock

    told, line = "", 0
    deadline = time.monotonic() + JOB_SECONDS_MAX
    while True:
        job = session.api.job(job_id)
        if describe(job) != told and not job.final:
            told = describe(job)
            session.talk(f"{clock(session.now_ms(), utc=session.utc)} {told}")
        if job.tasks:
            page = session.api.log_after(job_id, job.tasks[0].name, line)
            line = page.end or line
            for text in page.lines:
                session.talk(f"  {job.tasks[0].name}│ {text}")
        if job.final:
            return job
        if time.monotonic() > deadline:
            raise CliError(f"the job did not end within {JOB_SECONDS_MAX:.0f} s", code=ExitCode.TIMED_OUT)
        time.sleep(POLL_SECONDS)


def _metrics(session: Session, job_id: str) -> None:
    from trackside.cli.metrics import show_series, span, step_for

    job = session.api.job(job_id)
    start_ms, end_ms = span(job, session.now_ms(), None)
    step_ms = step_for(end_ms - start_ms, whole=False)
    session.talk("")
    series = session.api.metrics(job_id, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)
    ordered = sorted(series, key=lambda one: (one.task, one.metric))
    show_series(session, job, ordered, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)


def _output_url(name: str) -> str:
    return f"obs://{BUCKET}/output/{name}/"


def _output(session: Session, data_dir: Path, name: str) -> None:
    place = data_dir / "obs" / BUCKET / "output" / name
    found = sorted(str(path.relative_to(data_dir.parent)) for path in place.rglob("*") if path.is_file())
    session.talk(f"\nIts output is {_output_url(name)}, on this machine:")
    for path in found:
        session.out(path)


def _stay(session: Session) -> None:
    session.talk(f"\nstill running at {session.api.endpoint}; press Ctrl+C to stop")
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        session.talk("")
