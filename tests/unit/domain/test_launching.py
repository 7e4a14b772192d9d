from tests.unit.domain.builders import a_job, a_spec, placed
from trackside.domain.job import MetricSource, Role
from trackside.domain.launching import launch_order
from trackside.domain.resources import Accelerator, Resources


def test_a_task_is_told_who_and_where_it_is() -> None:
    job = placed(a_job(2))
    order = launch_order(job, job.tasks[1], hosts=["10.0.0.1", "10.0.0.2"])
    expected = {
        "MA_NUM_HOSTS": "2",
        "VC_TASK_INDEX": "1",
        "VC_WORKER_NUM": "2",
        "VC_WORKER_HOSTS": "10.0.0.1,10.0.0.2",
        "MA_NUM_GPUS": "0",
        "MA_TASK_NAME": "worker",
        "MA_SCHEDULE_CNT": "1",
        "MA_PROC_START_CNT": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "TRACKSIDE_TASK": "worker-1",
    }
    assert {name: order.environment[name] for name in expected} == expected
    assert str(order.key) == f"{job.id}.1.worker-1"


def test_parameters_become_arguments_and_a_job_cannot_override_its_own_identity() -> None:
    spec = a_spec(1, parameters=(("lr", "0.1"), ("empty", "")), environments={"RANK": "99", "A": "b"})
    job = placed(a_job(1, spec=spec))
    order = launch_order(job, job.tasks[0], hosts=["h"], runtime_environment={"A": "runtime", "B": "c"})
    assert order.arguments == ("--lr=0.1", "--empty=")
    assert order.environment["RANK"] == "0"
    assert order.environment["A"] == "b"
    assert order.environment["B"] == "c"


def test_a_tasks_agent_learns_where_the_jobs_own_metrics_are() -> None:
    sources = (MetricSource(command=("cat", "metrics")), MetricSource(path="/metrics", port=9100))
    patterns = (("loss", r"loss: (\S+)"),)
    job = placed(a_job(1, spec=a_spec(1, custom_metrics=sources, log_patterns=patterns)))
    order = launch_order(job, job.tasks[0], hosts=["h"])
    assert (order.custom_metrics, order.log_patterns) == (sources, patterns)


def test_a_boot_file_is_used_only_without_a_command_and_roles_may_bring_their_own() -> None:
    gpu = Resources(cpu_cores=1, memory_bytes=1, cards=2, accelerator=Accelerator.GPU)
    roles = (Role(name="ps", resources=gpu, command="serve"), Role(name="worker", resources=gpu))
    spec = a_spec(roles=roles, command=None, code_dir="obs://b/code/", boot_file="train.py")
    job = placed(a_job(spec=spec))
    first, second = (launch_order(job, task, hosts=["h", "i"]) for task in job.tasks)
    assert (first.shell_command, first.boot_file) == ("serve", None)
    assert (second.shell_command, second.boot_file) == (None, "train.py")
    assert first.environment["MA_NUM_GPUS"] == "2"
    assert second.environment["VC_WORKER_HOSTS"] == "i"
