import json

import pytest

from tests.unit.domain.builders import a_job, a_spec, after, ended, placed, started
from trackside.domain import rules
from trackside.domain.exchange import EndCause
from trackside.domain.job import Job, RestartPolicy, Role, SuccessPolicy, TaskState
from trackside.domain.launching import launch_order
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Resources

SIZE = Resources(cpu_cores=1, memory_bytes=GIB)


def a_running(*roles: Role, **fields: object) -> Job:
    job = placed(a_job(spec=a_spec(roles=roles, **fields)))
    return after(job, *(started(task.name) for task in job.tasks))


def a_role(policy: RestartPolicy, *, restarts_max: int = 2) -> Role:
    return Role(count=2, resources=SIZE, restart=policy, restarts_max=restarts_max)


def test_a_failed_task_is_started_again_in_its_place_and_the_job_goes_on() -> None:
    job = a_running(a_role(RestartPolicy.ON_FAILURE))
    job = after(job, ended("worker-1", 3, at_ms=9_000))
    assert job.phase is Phase.RESTARTING
    again = job.task("worker-1")
    assert again is not None
    assert (again.state, again.attempt, again.started_at_ms) == (TaskState.PLACED, 2, None)
    assert [task.exit_code for task in job.past_tasks] == [3]
    assert launch_order(job, again, hosts=["h", "h"]).environment["MA_PROC_START_CNT"] == "2"
    assert rules.apply_report(job, ended("worker-1", 0, attempt=1)) is None, "the old start is fenced"
    job = after(job, started("worker-1", at_ms=9_500, attempt=2))
    assert job.phase is Phase.RUNNING
    (restart,) = job.records[-1].recoveries
    assert (restart.task, restart.started_at_ms, restart.ended_at_ms) == ("worker-1", 9_000, 9_500)
    assert job.records[-1].running_at_ms == 3_000
    job = after(job, ended("worker-0"), ended("worker-1", attempt=2))
    assert job.phase is Phase.SUCCEEDED


def test_restarts_end_with_their_budget() -> None:
    job = a_running(a_role(RestartPolicy.ON_FAILURE, restarts_max=1))
    job = after(job, ended("worker-1", 3), started("worker-1", attempt=2), ended("worker-1", 4, attempt=2))
    assert job.ending is not None
    assert job.ending.phase is Phase.FAILED


@pytest.mark.parametrize(
    ("policy", "end", "again"),
    [
        (RestartPolicy.NEVER, {"exit_code": 1}, False),
        (RestartPolicy.ON_FAILURE, {"exit_code": 0}, False),
        (RestartPolicy.ON_FAILURE, {"exit_code": None, "signal": 9}, True),
        (RestartPolicy.EXIT_CODE, {"exit_code": 1}, False),
        (RestartPolicy.EXIT_CODE, {"exit_code": 137}, True),
        (RestartPolicy.EXIT_CODE, {"exit_code": None, "signal": 15}, True),
        (RestartPolicy.EXIT_CODE, {"exit_code": None, "cause": EndCause.SHIM_LOST}, False),
        (RestartPolicy.ALWAYS, {"exit_code": 0}, True),
        (RestartPolicy.ALWAYS, {"exit_code": None, "cause": EndCause.CANNOT_START}, False),
    ],
)
def test_each_policy_restarts_what_it_says(
    policy: RestartPolicy, end: dict[str, object], again: bool
) -> None:
    job = after(a_running(a_role(policy)), ended("worker-0", **end))  # type: ignore[arg-type]
    assert bool(job.records[-1].recoveries) is again


def test_nothing_is_started_again_once_the_fate_is_decided() -> None:
    job = a_running(a_role(RestartPolicy.ALWAYS))
    job, _ = rules.ask_stop(job, by="ana", at_ms=5_000)
    job = after(job, ended("worker-0", None, signal=15, stopped_by_us=True))
    assert job.records[-1].recoveries == ()


def test_parameter_servers_are_stopped_when_the_workers_are_done() -> None:
    job = a_running(
        Role(name="ps", resources=SIZE, service=True), Role(name="worker", count=2, resources=SIZE)
    )
    job = after(job, ended("worker-0"))
    assert job.ending is None
    job = after(job, ended("worker-1"))
    assert job.ending is not None
    job = after(job, ended("ps-0", None, signal=15, stopped_by_us=True))
    assert job.phase is Phase.SUCCEEDED
    assert job.reason is not None
    assert job.reason.text == "every task that works exited 0"


def test_the_chief_alone_may_speak_for_the_job() -> None:
    roles = (Role(name="worker", resources=SIZE), Role(name="chief", resources=SIZE, chief=True))
    job = a_running(*roles, success=SuccessPolicy.CHIEF)
    job = after(job, ended("worker-0"))
    assert job.ending is None
    job = after(a_running(*roles, success=SuccessPolicy.CHIEF), ended("chief-0"))
    job = after(job, ended("worker-0", None, signal=9, stopped_by_us=True))
    assert job.phase is Phase.SUCCEEDED
    assert job.reason is not None
    assert job.reason.text == "chief-0 exited 0"


def test_without_a_chief_role_the_first_worker_speaks() -> None:
    job = a_running(Role(count=2, resources=SIZE), success=SuccessPolicy.CHIEF)
    job = after(job, ended("worker-0"), ended("worker-1", 1, stopped_by_us=True))
    assert job.phase is Phase.SUCCEEDED


def test_tensorflow_tasks_are_told_their_cluster() -> None:
    roles = (
        Role(name="chief", resources=SIZE),
        Role(name="worker", count=2, resources=SIZE),
        Role(name="evaluator", resources=SIZE),
    )
    job = a_running(*roles, framework="tensorflow")
    orders = [launch_order(job, task, hosts=["a", "b", "c", "d"]) for task in job.tasks]
    config = json.loads(orders[2].environment["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == ["b:20002", "c:20003"]
    assert list(config["cluster"]) == ["chief", "worker"]
    assert json.loads(orders[3].environment["TF_CONFIG"])["task"] == {"type": "evaluator", "index": 0}
