"""Eight jobs under chance: faults of every kind, server and agent killed. Afterwards everything must add up.

TRACKSIDE_SEED=N replays the faults of a run that printed N; TRACKSIDE_SOAK=1 goes on for five minutes.
"""

import asyncio
import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    Spec,
    SpecResource,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.sdk import OVER, client_of, details
from tests.e2e.waiting import eventually
from trackside.agent.cgroup import detect
from trackside.agent.control import agent_pid
from trackside.domain import job as domain
from trackside.domain import recovery
from trackside.domain.chaos import FAULTS
from trackside.domain.fault import RecoverLevel, RecoverResult
from trackside.domain.phase import Phase
from trackside.persistence.stores import open_stores

SOAK = bool(os.environ.get("TRACKSIDE_SOAK"))
SEED = int(os.environ.get("TRACKSIDE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
CHAOS_SECONDS = 300.0 if SOAK else 20.0
DRAIN_SECONDS = 120.0
LOOK_EVERY = 6  # steps between two looks at the samples
JOBS, WORKERS = 8, 4
BUDGET = "20"
POLICIES: tuple[dict[str, str], ...] = (
    {"proc-retry-num": BUDGET},
    {"pod-retry-num": BUDGET},
    {"job-retry-num": BUDGET},
    {"proc-retry-num": BUDGET, "pod-retry-num": BUDGET, "job-retry-num": BUDGET},
)
# A line is acknowledged by a line in a file of the task's own, written after it.
WORKER = (
    "n=0; while [ ! -e {gate} ]; do n=$((n+1)); echo $TRACKSIDE_TASK_KEY line $n"
    " && echo $n >> {acks}/$TRACKSIDE_TASK_KEY; sleep 0.4; done; echo done"
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        os.geteuid() != 0 or not detect().limits_memory or detect().unified is None,
        reason="every kind of fault needs control groups and tasks with mounts of their own",
    ),
]


@dataclass(frozen=True)
class Step:
    """One blow: to a task, to the server or to the agent; and how long to wait after it."""

    what: str  # a fault's word, "server" or "agent"
    job: int = 0
    task: str = ""
    seconds: float = 0.0
    pause: float = 0.0


def steps(seed: int) -> Iterator[Step]:
    """Yield blows for ever, the same for the same seed."""
    dice = random.Random(seed)
    words = tuple(FAULTS)
    while True:
        what = dice.choices(("fault", "server", "agent"), (20, 1, 2))[0]
        word = dice.choice(words)
        job, task = dice.randrange(JOBS), f"worker-{dice.randrange(WORKERS)}"
        seconds, pause = round(dice.uniform(0.2, 3.0), 2), round(dice.uniform(0.0, 0.6), 2)
        yield Step(what, pause=pause) if what != "fault" else Step(word, job, task, seconds, pause)


@dataclass
class Campaign:
    """The jobs, what was done to them, and what was seen of them meanwhile."""

    server: LiveServer
    directory: Path
    slots: list[str] = field(default_factory=list)  # the jobs that run; one that ended makes room for another
    job_ids: list[str] = field(default_factory=list)
    struck: list[Step] = field(default_factory=list)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)  # job and the beginning of the event
    done: int = 0
    samples: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=dict)

    @property
    def gate(self) -> Path:
        return self.directory / "gate"

    def begin(self) -> None:
        self.slots = [self._submit(number) for number in range(JOBS)]

    def _submit(self, number: int) -> str:
        also_own = "true" if number >= JOBS // 2 else "false"
        policy = POLICIES[number % len(POLICIES)] | {"job-unconditional-retry": also_own}
        body = Job(
            kind="job",
            metadata=JobMetadata(
                name=f"campaign-{number}",
                annotations={f"fault-tolerance/{name}": value for name, value in policy.items()},
            ),
            algorithm=JobAlgorithm(command=WORKER.format(gate=self.gate, acks=self.directory)),
            spec=Spec(
                resource=SpecResource(
                    node_count=WORKERS,
                    main_container_customized_flavor={"cpu_core_num": 0.05, "mem_size": 0.125},
                )
            ),
        )
        made = client_of(self.server).create_training_job(CreateTrainingJobRequest(body=body))
        self.job_ids.append(str(made.metadata.id))
        return self.job_ids[-1]

    def strike(self, step: Step) -> None:
        self.struck.append(step)
        if step.what == "server":
            self.server.kill()
            self.server.start()
        elif step.what == "agent":
            agent = eventually(lambda: agent_pid(self.server.data_dir), "there is no agent")
            os.kill(agent, signal.SIGKILL)
        else:
            self._inject(step)
        time.sleep(step.pause)

    def _inject(self, step: Step) -> None:
        asked: dict[str, Any] = {"fault": step.what, "task": step.task}
        if FAULTS[step.what].lasts:
            asked["seconds"] = step.seconds
        job_id = self.slots[step.job]
        request = urllib.request.Request(
            f"{self.server.endpoint}/api/trackside/v1/jobs/{job_id}/faults",
            method="POST",
            data=json.dumps(asked).encode(),
            headers={"X-Auth-Token": self.server.token, "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (409, 503):  # it does not run just now, or its node did not answer
                    raise
            if details(client_of(self.server), job_id).status.phase in OVER:
                self.slots[step.job] = self._submit(step.job)
            return
        self.done += told["done"]
        self.acknowledged.append((job_id, f"fault injected by admin: {step.what} of {step.task}"))

    def look_at_samples(self) -> None:
        """Remember every sample the server shows: none of them may be gone later."""
        now = time.time_ns() // 1_000_000
        for job_id in self.slots:
            for series in self._series(job_id, now - 60_000, now):
                points = self.samples.setdefault((job_id, series["task"], series["metric"]), {})
                points.update(dict(series["points"]))

    def _series(self, job_id: str, start_ms: int, end_ms: int) -> Any:
        path = f"/api/trackside/v1/jobs/{job_id}/metrics?raw=true&start_ms={start_ms}&end_ms={end_ms}"
        return self.server.call("GET", path)["series"]

    def drain(self) -> None:
        """Let every worker end by itself, and wait until all jobs are over and nothing is left of them."""
        self.gate.touch()
        client = client_of(self.server)
        eventually(
            lambda: all(details(client, job_id).status.phase in OVER for job_id in self.job_ids),
            "jobs do not end",
            seconds=DRAIN_SECONDS,
        )
        tasks = self.server.data_dir / "agent" / "tasks"
        eventually(lambda: not any(tasks.iterdir()), "the agent still holds tasks")

    def check_samples(self) -> None:
        assert self.samples, "nothing was measured at all"
        now = time.time_ns() // 1_000_000
        for job_id in self.job_ids:
            shown = {
                (job_id, series["task"], series["metric"]): dict(series["points"])
                for series in self._series(job_id, now - int(CHAOS_SECONDS + 2 * DRAIN_SECONDS) * 1000, now)
            }
            for key, points in self.samples.items():
                if key[0] == job_id:
                    missing = points.items() - shown.get(key, {}).items()
                    assert not missing, f"samples of {key} are gone: {sorted(missing)[:5]}"

    def check_events(self) -> None:
        told = {job_id: self.messages(job_id) for job_id in self.job_ids}
        for job_id, beginning in self.acknowledged:
            assert any(message.startswith(beginning) for message in told[job_id]), beginning

    def messages(self, job_id: str) -> list[str]:
        path = f"/v2/{self.server.project_id}/training-jobs/{job_id}/events?limit=100&order=asc"
        found: list[str] = []
        while True:
            page = self.server.call("GET", f"{path}&offset={len(found)}")
            found += [event["message"] for event in page["events"]]
            if not page["events"]:
                assert len(found) == page["total"]
                return found

    def check_lines(self) -> None:
        """Every line that a task knows it wrote is in the log, whatever ended the task."""
        starts = 0
        for job_id in self.job_ids:
            for number in range(WORKERS):
                kept = self.log(job_id, f"worker-{number}")
                for acks in self.directory.glob(f"{job_id}.*.worker-{number}"):
                    starts += 1
                    wrote = {f"{acks.name} line {count}" for count in acks.read_text().split()}
                    assert wrote <= kept, f"lines of {acks.name} are lost: {sorted(wrote - kept)[:5]}"
        assert starts >= JOBS * WORKERS

    def log(self, job_id: str, task: str) -> set[str]:
        path = f"/v2/{self.server.project_id}/training-jobs/{job_id}/logs/{task}?lines=500&order=asc"
        found: set[str] = set()
        line = 0
        while True:
            page = self.server.call("GET", f"{path}&base_line={line}")
            if not page.get("content"):
                return found
            found.update(page["content"].splitlines())
            line = int(page["end_line"])

    def check_nothing_is_left(self) -> None:
        bases = detect()
        groups = {*bases.v1.values(), *([bases.unified] if bases.unified else [])}
        for job_id in self.job_ids:
            assert processes_of(job_id) == []
            assert not [group for base in groups for group in (base / "trackside").glob(f"{job_id}*")]

    def check_own_logs(self) -> None:
        agent = (self.server.data_dir / "agent" / "agent.log").read_text()
        assert "Traceback" not in agent, agent[agent.index("Traceback") :][:4000]
        told = "".join(self.server.log)
        expected = told.count(
            "AgentTrouble: the agent did not start"
        )  # it was killed as soon as it was there
        assert told.count("Traceback") == expected, told[-8000:]


@pytest.mark.timeout(900)
def test_everything_adds_up_after_a_campaign(
    own_server: LiveServer, open_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = open_dir.parent / f"{open_dir.name}.toml"
    config.write_text("stop_grace_seconds = 1\nsample_seconds = 1\nchaos = true\n")
    own_server.extra = ("--config", str(config))
    campaign = Campaign(own_server.start(), open_dir)
    with capsys.disabled():
        print(f"\ncampaign with TRACKSIDE_SEED={SEED}")
    try:
        campaign.begin()
        deadline = time.monotonic() + CHAOS_SECONDS
        for number, step in enumerate(steps(SEED)):
            if time.monotonic() > deadline:
                break
            campaign.strike(step)
            if number % LOOK_EVERY == 0:
                campaign.look_at_samples()
        campaign.drain()
        assert campaign.struck == list(islice(steps(SEED), len(campaign.struck)))
        assert campaign.done, "no fault was ever made"
        campaign.check_events()
        campaign.check_samples()
        campaign.check_lines()
        campaign.check_nothing_is_left()
        campaign.check_own_logs()
        own_server.stop()
        jobs = stored(own_server.data_dir, campaign.job_ids)
        for job in jobs:
            check_job(job)
        with capsys.disabled():
            print(summary(campaign, jobs))
    except AssertionError as error:
        raise AssertionError(
            f"with TRACKSIDE_SEED={SEED} after {len(campaign.struck)} steps: {error}"
        ) from error
    finally:
        config.unlink()


def test_a_seed_gives_the_same_blows_again() -> None:
    first, again, other = (list(islice(steps(seed), 200)) for seed in (7, 7, 8))
    assert first == again != other
    assert {step.what for step in first} == {*FAULTS, "server", "agent"}
    assert {step.job for step in first} == set(range(JOBS))


def stored(data_dir: Path, job_ids: list[str]) -> list[domain.Job]:
    """Return the jobs as they are on disk, in the domain's own words."""

    async def read() -> list[domain.Job]:
        stores = open_stores(f"sqlite:///{data_dir / 'trackside.db'}")
        await stores.start()
        try:
            found = [stores.jobs.get(domain.JobId(job_id)) for job_id in job_ids]
        finally:
            stores.close()
        return [job for job in found if job is not None]

    jobs = asyncio.run(read())
    assert len(jobs) == len(job_ids)
    return jobs


def check_job(job: domain.Job) -> None:
    """Check that what is told of a job fits together."""
    assert job.phase in (Phase.SUCCEEDED, Phase.FAILED), job
    assert job.reason is not None
    assert job.ending is None
    assert job.ended_at_ms is not None
    assert job.started_at_ms is not None
    assert job.created_at_ms <= job.started_at_ms <= job.ended_at_ms
    assert [record.number for record in job.records] == list(range(1, len(job.records) + 1))
    for record in job.records:
        check_record(job, record)
    for before, after in pairwise(job.records):
        assert before.ended_at_ms is not None
        assert before.ended_at_ms <= after.queued_at_ms
        assert before.recoveries, f"nothing says why attempt {after.number} was begun"
        assert before.recoveries[-1].result is not RecoverResult.DOWNGRADE
    check_tasks(job)
    check_counts(job)
    for level in (RecoverLevel.PROC_RESTART, RecoverLevel.POD_RESCHEDULE, RecoverLevel.JOB_RESCHEDULE):
        assert recovery.used(job, level) <= recovery.budget(job, level)


def check_record(job: domain.Job, record: domain.Record) -> None:
    moments = (record.queued_at_ms, record.placed_at_ms, record.running_at_ms, record.ended_at_ms)
    known = [at_ms for at_ms in moments if at_ms is not None]
    assert known == sorted(known), record
    assert record.ended_at_ms is not None, f"attempt {record.number} was never closed"
    assert record.reason is not None
    assert record.duration_ms is None or record.duration_ms >= 0
    for one in record.recoveries:
        assert one.result is not RecoverResult.RECOVERING, one
        assert one.ended_at_ms is not None
        assert one.started_at_ms <= one.ended_at_ms
    of_it = {task.name for task in (*job.past_tasks, *job.tasks) if task.record == record.number}
    assert {one.task for one in record.exits} == of_it


def check_tasks(job: domain.Job) -> None:
    starts: dict[str, list[int]] = {}
    for task in (*job.past_tasks, *job.tasks):
        starts.setdefault(task.name, []).append(task.attempt)
        assert task.state is domain.TaskState.ENDED, task
        assert 1 <= task.record <= len(job.records)
        assert task.reason is not None
        if task.started_at_ms is not None:
            assert task.ended_at_ms is not None
            assert task.started_at_ms <= task.ended_at_ms
    assert set(starts) == set(domain.task_names(job.spec))
    for name, attempts in starts.items():
        assert sorted(attempts) == list(range(1, len(attempts) + 1)), (name, attempts)


def check_counts(job: domain.Job) -> None:
    moments = [at_ms for at_ms, _ in job.node_counts]
    counts = [count for _, count in job.node_counts]
    assert moments == sorted(moments)
    assert all(0 <= count <= WORKERS for count in counts)
    assert all(before != after for before, after in pairwise(counts))
    assert counts[-1] == 0
    assert max(counts) == WORKERS


def summary(campaign: Campaign, jobs: list[domain.Job]) -> str:
    attempts = sum(len(job.records) for job in jobs)
    recoveries = sum(len(record.recoveries) for job in jobs for record in job.records)
    succeeded = sum(job.phase is Phase.SUCCEEDED for job in jobs)
    kills = [sum(step.what == who for step in campaign.struck) for who in ("server", "agent")]
    return (
        f"{len(campaign.struck)} blows ({campaign.done} faults made, server killed {kills[0]} times, "
        f"agent {kills[1]} times): {attempts} attempts, {recoveries} recoveries, "
        f"{succeeded} of {len(jobs)} jobs succeeded, {sum(map(len, campaign.samples.values()))} samples kept"
    )
