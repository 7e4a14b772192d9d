"""Every field of a create body that the SDK can send comes back through the SDK."""

import json
import urllib.request
from typing import Any

import pytest
from huaweicloudsdkcore.utils.http_utils import sanitize_for_serialization
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, wait_until
from tests.unit.api.modelarts_v2.samples import contains

pytestmark = pytest.mark.e2e

CODE = """
import argparse, os
parser = argparse.ArgumentParser()
for name in ("data", "rate"):
    parser.add_argument("--" + name)
arguments, _ = parser.parse_known_args()
with open(os.path.join(os.environ["RESULT"], "result.txt"), "w") as out:
    out.write(open(os.path.join(arguments.data, "numbers.txt")).read() + arguments.rate + os.environ["WORD"])
print("done")
"""


def the_body() -> sdk.Job:
    """Return a body that sets all that the SDK's models of a plain job hold."""
    return sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(
            name="whole",
            workspace_id="0",
            description="all fields",
            annotations={"fault-tolerance/job-retry-num": "0"},
            training_experiment_reference=sdk.TrainingExperimentRequest(id="e1", name="exp"),
        ),
        algorithm=sdk.JobAlgorithm(
            name="an algorithm",
            code_dir="obs://bucket/code/",
            boot_file="obs://bucket/code/train.py",
            autosearch_config_path="obs://bucket/search.yaml",
            autosearch_framework_path="obs://bucket/framework/",
            parameters=[
                sdk.Parameters(
                    name="rate",
                    value="0.5",
                    description="a rate",
                    constraint=sdk.ParametersConstraint(
                        type="Float",
                        editable=True,
                        required=False,
                        valid_type="Range",
                        valid_range=["0", "1"],
                    ),
                    i18n_description=sdk.I18nDescription(language="en-us", description="a rate"),
                )
            ],
            policies=sdk.JobPolicies(
                auto_search=sdk.AutoSearch(
                    skip_search_params="a",
                    reward_attrs=[sdk.RewardAttrs(name="loss", mode="min", regex="loss=(.*)")],
                    search_params=[sdk.SearchParams(name="rate", param_type="continuous", lower_bound="0")],
                    algo_configs=[
                        sdk.AlgoConfigs(
                            name="tpe_search",
                            params=[sdk.AutoSearchAlgoConfigParameter(key="k", value="v", type="String")],
                        )
                    ],
                )
            ),
            inputs=[
                sdk.Input(
                    name="data",
                    description="numbers",
                    access_method="parameter",
                    remote=sdk.InputDataInfo(obs=sdk.InputDataInfoObs(obs_url="/bucket/data/")),
                    remote_constraint=[sdk.InputRemoteConstraint(data_type="obs")],
                )
            ],
            outputs=[
                sdk.Output(
                    name="RESULT",
                    access_method="env",
                    remote=sdk.Remote(obs=sdk.RemoteObs(obs_url="obs://bucket/result/")),
                )
            ],
            engine=sdk.JobEngine(image_url="swr.example.com/torch:2", install_sys_packages=True),
            environments={"WORD": "hello"},
            summary=sdk.Summary(
                log_type="tensorboard",
                log_dir=sdk.LogDir(pfs=sdk.PFSSummary(pfs_path="/pfs/logs")),
                data_sources=[sdk.DataSource(job=sdk.JobSummary(job_id="j0"))],
            ),
        ),
        spec=sdk.Spec(
            resource=sdk.SpecResource(
                node_count=1,
                pool_group_id="group",
                main_container_customized_flavor=sdk.MainContainerCustomizedFlavor(
                    cpu_core_num=0.5, mem_size=0.5, accelerator_num=0
                ),
            ),
            volumes=[
                sdk.SpecVolumes(
                    nfs=sdk.Nfs(nfs_server_path="10.0.0.1:/share", local_path="/mnt", read_only=True)
                )
            ],
            log_export_path=sdk.LogExportPath(obs_url="obs://bucket/logs/", host_path="/var/log/x"),
            auto_stop=sdk.AutoStop(time_unit="HOURS", duration=2),
            retention=sdk.RetentionPolicy(policy="enabled"),
            schedule_policy=sdk.SchedulePolicy(
                required_affinity=sdk.RequiredAffinity(affinity_type="cabinet", affinity_group_size=1),
                priority=2,
                preemptible=True,
            ),
            log_export_config=sdk.LogExportConfig(version="v1", rotation_enabled=False),
            notification=sdk.Notification(topic_urn="urn:smn:x", events=["JobFailed"]),
            custom_metrics=[
                sdk.CustomMetrics(_exec=sdk.ModelExec(command=["cat", "/tmp/none.prom"])),
                sdk.CustomMetrics(http_get=sdk.HttpGet(path="/metrics", port=19999)),
            ],
            output_model=sdk.OutputModel(
                obs=sdk.ObsModel(obs_path="obs://bucket/model", local_path="/model")
            ),
            asset_model=sdk.AssetModel(name="model", version="1"),
            asset_id="asset",
            reserved_time=sdk.ReserveTime(time_unit="HOURS", duration=1),
        ),
        endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["mine"])),
        train_type="SFT",
        ftjob_config=sdk.MasJobConfig(
            ft_job_uuid="u",
            task_env=sdk.TaskEnv(envs=[sdk.EnvVar(env_name="A", value="1", modifiable=False)]),
            checkpoint_config=sdk.CheckpointConf(checkpoint_id="c", save_checkpoints_max=3),
        ),
    )


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Any:
    return client_of(server)


@pytest.fixture(scope="module")
def whole(server: LiveServer, client: Any) -> Any:
    """The job made of that body, once it is over."""
    bucket = server.data_dir / "obs" / "bucket"
    for path, text in {"code/train.py": CODE, "data/numbers.txt": "42 "}.items():
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        (bucket / path).write_text(text)
    created = client.create_training_job(sdk.CreateTrainingJobRequest(body=the_body()))
    return wait_until(client, created.metadata.id, "Completed")


def test_the_sdk_gets_back_what_it_sent(whole: Any) -> None:
    sent = sanitize_for_serialization(the_body())
    got = sanitize_for_serialization(whole)
    sent["algorithm"]["environments"] = [
        sent["algorithm"]["environments"]
    ]  # the vendor's response has a list
    for field in ("auto_stop", "retention", "log_export_config", "notification", "asset_id", "reserved_time"):
        del sent["spec"][field]  # the SDK's response model does not have them: the next test reads them
    del sent["train_type"]
    assert contains(got, sent), json.dumps(got, indent=1)


def test_fields_the_sdk_does_not_read_are_in_the_answer_too(server: LiveServer, whole: Any) -> None:
    url = f"{server.endpoint}/v2/{server.project_id}/training-jobs/{whole.metadata.id}"
    request = urllib.request.Request(url, headers={"X-Auth-Token": server.token})
    with urllib.request.urlopen(request, timeout=30) as answer:
        got = json.load(answer)
    sent = sanitize_for_serialization(the_body())
    sent["algorithm"]["environments"] = [sent["algorithm"]["environments"]]
    assert contains(got, sent), json.dumps(got, indent=1)


def test_the_body_was_also_acted_on(server: LiveServer, whole: Any) -> None:
    result = server.data_dir / "obs" / "bucket" / "result" / "result.txt"
    assert result.read_text() == "42 0.5hello"


def test_a_heterogeneous_job(client: Any) -> None:
    def task(role: str, nodes: int) -> sdk.Task:
        return sdk.Task(
            role=role,
            algorithm=sdk.TaskAlgorithm(environments={"BOTH": "1"}),
            task_resource=sdk.TaskTaskResource(node_count=nodes),
        )

    size = sdk.MainContainerCustomizedFlavor(cpu_core_num=0.1, mem_size=0.1)
    body = sdk.Job(
        kind="hetero_job",
        metadata=sdk.JobMetadata(name="hetero"),
        algorithm=sdk.JobAlgorithm(command="echo $BOTH"),
        tasks=[task("ps", 1), task("worker", 2)],
        spec=sdk.Spec(resource=sdk.SpecResource(main_container_customized_flavor=size)),
    )
    created = client.create_training_job(sdk.CreateTrainingJobRequest(body=body))
    wait_until(client, created.metadata.id, "Completed")
    found = details(client, created.metadata.id)
    assert found.kind == "hetero_job"
    assert found.status.tasks == ["ps-0", "worker-0", "worker-1"]
    assert [task.role for task in found.tasks] == ["ps", "worker"]
    assert found.tasks[0].algorithm.environments == {"BOTH": "1"}
    log = client.show_training_job_logs_preview(
        sdk.ShowTrainingJobLogsPreviewRequest(training_job_id=created.metadata.id, task_id="ps-0")
    )
    assert log.content == "1\n"
