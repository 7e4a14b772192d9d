"""Jobs and versions: creation, lists, details, changes, ends."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.api.dialect_api import CALLER, ELSEWHERE
from tests.unit.api.modelarts_v1.harness import COMMAND, Api
from trackside.api.modelarts_v1.translate_job import config_of
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Access, Channel, JobSpec, Role, RuntimeChoice
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Resources

MINUTE = 60_000
WHOLE: dict[str, Any] = {
    "worker_server_num": 1,
    "app_url": "/usr/app/",
    "boot_file_url": "/usr/app/boot.py",
    "parameter": [{"label": "learning_rate", "value": "0.01"}, {"label": "batch_size", "value": 32}],
    "data_url": "/usr/data/",
    "spec_id": 1,
    "engine_id": 1,
    "train_url": "/usr/train/",
    "log_url": "/usr/log/",
    "volumes": [
        {
            "nfs": {
                "id": "43b3",
                "src_path": "192.168.8.150:/",
                "dest_path": "/home/work/nas",
                "read_only": False,
            }
        },
        {"host_path": {"src_path": "/root/work", "dest_path": "/home/mind", "read_only": False}},
    ],
    "nas_type": "nfs",
    "nas_share_addr": "192.168.8.150:/",
    "nas_mount_path": "/home/work/nas",
}


@pytest.fixture
def stocked(api: Api) -> Api:
    """A server whose object store holds what the documented request names."""
    api.put("/usr/app/boot.py")
    api.put("/usr/data/file")
    return api


# Creation


def test_the_documented_request_is_answered_in_the_documented_shape(stocked: Api) -> None:
    body = {
        "job_name": "TestModelArtsJob",
        "job_desc": "This is a ModelArts job",
        "workspace_id": "af26",
        "config": WHOLE,
    }
    answer = stocked.ok("POST", "training-jobs", body)
    job = stocked.job(1)
    assert answer == {
        "is_success": True,
        "job_id": 1,
        "job_name": "TestModelArtsJob",
        "status": 7,
        "create_time": job.created_at_ms,
        "version_id": 1,
        "version_name": "V0001",
        "resource_id": f"job{job.short_id}",
    }
    spec = job.spec
    assert (spec.code_dir, spec.boot_file) == ("obs://usr/app/", "boot.py")
    assert spec.parameters == (("learning_rate", "0.01"), ("batch_size", "32"))
    assert spec.inputs == (Channel(name="data_url", url="obs://usr/data/", access=Access.PARAMETER),)
    assert spec.outputs == (Channel(name="train_url", url="obs://usr/train/", access=Access.PARAMETER),)
    assert (spec.log_export_url, spec.workspace_id, spec.pool_id) == ("obs://usr/log/", "af26", "default")
    assert spec.runtime == RuntimeChoice(engine_id="tf-1.4")
    assert [(role.name, role.count, role.flavor_id) for role in spec.roles] == [("worker", 1, "cpu.1c2g")]


def test_everything_given_comes_back(stocked: Api) -> None:
    stocked.ok("POST", "training-jobs", {"job_name": "a", "job_desc": "d", "config": WHOLE})
    detail = stocked.get("training-jobs/1/versions/1")
    assert {name: detail[name] for name in WHOLE} == WHOLE
    assert (detail["job_name"], detail["job_desc"], detail["is_success"]) == ("a", "d", True)
    assert (detail["engine_type"], detail["engine_name"]) == (1, "TensorFlow")
    assert (detail["spec_code"], detail["core"], detail["cpu"]) == ("cpu.1c2g", "1", "2")
    assert (detail["gpu_num"], detail["gpu_type"], detail["duration"]) == (0, "", 0)
    assert json.loads(detail["model_metric_list"])["metric"] == []
    assert "pre_version_id" not in detail
    assert "start_time" not in detail


def test_a_custom_image_gets_its_parameters_as_variables(api: Api) -> None:
    api.make(
        "image",
        user_image_url="100.125.5.235:20202/jobmng/custom:1.0",
        parameter=[{"label": "P1", "value": "1"}],
    )
    spec = api.job(1).spec
    assert spec.environments == {"P1": "1"}
    assert spec.parameters == ()
    assert spec.runtime.image == "100.125.5.235:20202/jobmng/custom:1.0"


def test_several_sources_are_several_inputs(stocked: Api) -> None:
    stocked.put("/more/data/file")
    sources = [{"type": "obs", "data_url": "/usr/data/"}, {"data_url": "obs://more/data/"}]
    stocked.make("sources", data_source=sources)
    assert [(c.name, c.url) for c in stocked.job(1).spec.inputs] == [
        ("data_url", "obs://usr/data/"),
        ("data_url_1", "obs://more/data/"),
    ]
    assert stocked.get("training-jobs/1/versions/1")["data_source"] == sources


@pytest.mark.parametrize(
    ("config", "flavor"),
    [
        ({"spec_id": 2}, "gpu.2x"),
        ({"spec_id": "2"}, "gpu.2x"),
        ({"spec_id": "npu.4x"}, "npu.4x"),
        ({"spec_id": None, "spec_code": "npu.4x"}, "npu.4x"),
        ({"spec_id": None, "flavor": {"code": "gpu.2x"}}, "gpu.2x"),
        ({"spec_id": None}, "cpu.1c2g"),
    ],
)
def test_sizes_are_named_by_place_or_by_code(api: Api, config: dict[str, Any], flavor: str) -> None:
    api.make("sized", **config)
    detail = api.get("training-jobs/1/versions/1")
    assert detail["spec_code"] == flavor
    assert detail["spec_id"] == ["cpu.1c2g", "gpu.2x", "npu.4x"].index(flavor) + 1


def test_numbers_may_come_as_text(api: Api) -> None:
    api.make("texts", worker_server_num="3", model_id="0", engine_id="2")
    assert api.get("training-jobs/1/versions/1")["worker_server_num"] == 3
    assert api.job(1).spec.runtime.engine_id == "mine"


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        ({"spec_id": 9}, "ModelArts.2781", "1 cpu.1c2g, 2 gpu.2x, 3 npu.4x"),
        ({"spec_id": "huge"}, "ModelArts.2781", "cpu.1c2g"),
        ({"engine_id": 9}, "ModelArts.EngineNotFound", "1 tf-1.4, 2 mine"),
        ({"engine_id": "nope"}, "ModelArts.EngineNotFound", "tf-1.4"),
        ({"model_id": 4}, "ModelArts.2788", "model_id"),
        ({"dataset_id": "d", "dataset_version_id": "v"}, "ModelArts.2788", "data_url"),
        ({"data_source": [{"type": "dataset", "dataset_id": "d"}]}, "ModelArts.2788", "data_url"),
        ({"data_source": [{"type": "ftp", "data_url": "/a/b"}]}, "ModelArts.2788", "data_source[0].type"),
        ({"data_source": [{"type": "obs"}]}, "ModelArts.2788", "data_source[0].data_url"),
        ({"data_url": "/a/", "data_source": [{"data_url": "/a/"}]}, "ModelArts.2788", "not both"),
        ({"data_url": "/no/where/"}, "ModelArts.ObjectNotFound", "obs://no/where/"),
        ({"user_command": ""}, "ModelArts.2788", "user_command"),
        ({"user_command": "", "boot_file_url": "/a/b.py"}, "ModelArts.2788", "app_url"),
        (
            {"user_command": "", "app_url": "/a/", "boot_file_url": "/c/b.py"},
            "ModelArts.2788",
            "below app_url",
        ),
        (
            {"user_command": "", "app_url": "/a/", "boot_file_url": "/a/../b.py"},
            "ModelArts.2788",
            "below app_url",
        ),
        ({"create_version": False}, "ModelArts.2788", "create_version"),
        ({"worker_server_num": 0}, "ModelArts.2788", "config.worker_server_num"),
        ({"worker_server_num": "5000"}, "ModelArts.2788", "worker_server_num"),
        ({"worker_server_num": 1.5}, "ModelArts.2788", "config.worker_server_num"),
        ({"parameter": [{"label": "a b", "value": "1"}]}, "ModelArts.2788", "config.parameter[0].label"),
        ({"parameter": {"a": 1}}, "ModelArts.2788", "config.parameter"),
        ({"user_image_url": "i", "parameter": [{"label": "a-b", "value": "1"}]}, "ModelArts.2788", "a-b"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(
    api: Api, config: dict[str, Any], code: str, told: str
) -> None:
    body = {"job_name": "bad", "config": {**COMMAND, **config}}
    status, found, message = api.refused("POST", "training-jobs", body)
    assert (status, found) == (400, code)
    assert told in message
    assert api.get("training-jobs")["job_total_count"] == 0


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "ü", 7, None])
def test_names_that_cannot_be(api: Api, name: Any) -> None:
    status, _, message = api.refused("POST", "training-jobs", {"job_name": name, "config": COMMAND})
    assert status == 400
    assert "job_name" in message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"job_name": "a"}'])
def test_bodies_that_cannot_be_read(api: Api, body: bytes) -> None:
    assert api.refused("POST", "training-jobs", body)[0] == 400


def test_a_name_is_taken_once(api: Api) -> None:
    api.make("TestModelArtsJob")
    taken = api.refused("POST", "training-jobs", {"job_name": "TestModelArtsJob", "config": COMMAND})
    assert taken == (409, "ModelArts.0103", "Job name:TestModelArtsJob is existed")
    api.ok("DELETE", "training-jobs/1")
    assert api.make("TestModelArtsJob")["job_id"] == 2


def test_a_name_is_taken_once_by_many_at_once(api: Api) -> None:
    async def race() -> list[tuple[int, Any]]:
        body = {"job_name": "same", "config": COMMAND}
        return await asyncio.gather(*(api.acall("POST", "training-jobs", body) for _ in range(8)))

    assert sorted(status for status, _ in api.run(race())) == [200] + [409] * 7


def test_workspaces_have_names_of_their_own(api: Api) -> None:
    api.make("same")
    api.ok("POST", "training-jobs", {"job_name": "same", "workspace_id": "w", "config": COMMAND})
    assert [job["job_id"] for job in api.get("training-jobs", workspace_id="w")["jobs"]] == [2]
    assert [job["job_id"] for job in api.get("training-jobs")["jobs"]] == [1]


def test_an_engine_by_number_is_not_used_where_none_is_mapped(bare_api: Api) -> None:
    bare_api.make("anywhere", engine_id=77)
    assert bare_api.get("training-jobs/1/versions/1")["engine_id"] == 77
    assert bare_api.job(1).spec.runtime == RuntimeChoice(image="engine_id:77")


def test_an_engine_by_number_is_refused_where_images_are_strict(strict_api: Api) -> None:
    body = {"job_name": "strict", "config": {**COMMAND, "engine_id": 77}}
    status, code, message = strict_api.refused("POST", "training-jobs", body)
    assert (status, code) == (400, "ModelArts.EngineNotFound")
    assert "engine_id:77" in message


# Versions


def test_versions_of_a_job(api: Api) -> None:
    api.make("first")
    api.make("other")
    made = api.ok("POST", "training-jobs/1/versions", {"config": {**COMMAND, "pre_version_id": 1}})
    assert (made["job_id"], made["version_id"], made["version_name"]) == (1, 3, "V0002")
    assert made["job_name"] == "first"
    third = api.ok(
        "POST",
        "training-jobs/1/versions",
        {"job_desc": "third", "config": {**COMMAND, "pre_version_id": "1"}},
    )
    assert (third["version_id"], third["version_name"]) == (4, "V0003")
    listed = api.get("training-jobs/1/versions")
    assert [(v["version_id"], v["version_name"], v.get("pre_version_id")) for v in listed["versions"]] == [
        (4, "V0003", 1),
        (3, "V0002", 1),
        (1, "V0001", None),
    ]
    assert (listed["job_id"], listed["job_desc"], listed["version_count"]) == (1, "third", 3)
    paged = api.get("training-jobs/1/versions", per_page=2, page=2)
    assert [v["version_id"] for v in paged["versions"]] == [1]
    assert paged["version_count"] == 3
    assert api.get("training-jobs/1/versions", page=9)["versions"] == []


def test_the_previous_version_must_be_one_of_the_job(api: Api) -> None:
    api.make("one")
    api.make("two")
    status, _, message = api.refused(
        "POST", "training-jobs/1/versions", {"config": {**COMMAND, "pre_version_id": 2}}
    )
    assert status == 400
    assert "there are 1" in message


def test_versions_made_at_once_are_numbered_apart(api: Api) -> None:
    api.make("many")

    async def race() -> list[tuple[int, Any]]:
        body = {"config": COMMAND}
        return await asyncio.gather(*(api.acall("POST", "training-jobs/1/versions", body) for _ in range(5)))

    assert sorted(answer["version_name"] for _, answer in api.run(race())) == [
        f"V000{n}" for n in range(2, 7)
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "training-jobs/9/versions"),
        ("GET", "training-jobs/0/versions"),
        ("GET", "training-jobs/1/versions/9"),
        ("GET", "training-jobs/1/versions/0"),
        ("GET", "training-jobs/2/versions/1"),
        ("GET", "training-jobs/1/versions/9/log/file-names"),
        ("POST", "training-jobs/1/versions/9/stop"),
        ("DELETE", "training-jobs/1/versions/9"),
        ("DELETE", "training-jobs/9"),
        ("GET", "training-jobs/999999999999999/versions/999999999999999"),
    ],
)
def test_what_is_not_there(api: Api, method: str, path: str) -> None:
    api.make("one")
    api.make("two")
    assert api.refused(method, path)[:2] == (404, "ModelArts.JobNotFound")


@pytest.mark.parametrize("job_id", ["x", "-1", "1.5", "1" * 16, "\uff11"])
def test_ids_are_whole_numbers(api: Api, job_id: str) -> None:
    assert api.refused("GET", f"training-jobs/{job_id}/versions")[:2] == (400, "ModelArts.2788")


def test_another_project_sees_nothing(api: Api) -> None:
    api.make("mine")
    api.caller = Caller(user="eve", project_id=ELSEWHERE, role=UserRole.USER)
    assert api.get("training-jobs")["jobs"] == []
    assert api.refused("GET", "training-jobs/1/versions/1")[0] == 404
    assert api.refused("GET", "training-jobs/1/versions")[0] == 404


def test_viewers_may_look_and_not_touch(api: Api) -> None:
    api.make("mine")
    api.caller = Caller(user="vic", project_id=CALLER.project_id, role=UserRole.VIEWER)
    assert api.get("training-jobs/1/versions/1")["job_id"] == 1
    assert api.refused("DELETE", "training-jobs/1")[:2] == (403, "APIGW.0302")


# Changes and ends


def test_the_description_is_changed_of_all_versions(api: Api) -> None:
    api.make("first")
    api.ok("POST", "training-jobs/1/versions", {"config": COMMAND})
    assert api.ok("PUT", "training-jobs/1", {"job_desc": "anew"}) == {"is_success": True}
    assert [api.get(f"training-jobs/1/versions/{n}")["job_desc"] for n in (1, 2)] == ["anew", "anew"]
    assert api.refused("PUT", "training-jobs/1", {"job_desc": "x" * 257})[0] == 400
    assert api.refused("PUT", "training-jobs/1", {})[0] == 400


def test_stop_and_delete(api: Api) -> None:
    api.make("first")
    for _ in range(2):
        api.ok("POST", "training-jobs/1/versions", {"config": COMMAND})
    assert api.ok("POST", "training-jobs/1/versions/2/stop") == {"is_success": True}
    assert api.get("training-jobs/1/versions/2")["status"] == 12
    assert api.ok("POST", "training-jobs/1/versions/2/stop") == {"is_success": True}, (
        "it is over: nothing to do"
    )
    assert api.ok("DELETE", "training-jobs/1/versions/1") == {"is_success": True}
    assert api.refused("GET", "training-jobs/1/versions/1")[0] == 404
    assert [v["version_id"] for v in api.get("training-jobs/1/versions")["versions"]] == [3, 2]
    assert api.ok("DELETE", "training-jobs/1") == {"is_success": True}
    assert api.refused("GET", "training-jobs/1/versions")[0] == 404


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        (Phase.RUNNING, 8),
        (Phase.LOST, 14),
        (Phase.SUCCEEDED, 10),
        (Phase.FAILED, 11),
        (Phase.CREATE_FAILED, 5),
    ],
)
def test_times_and_status(api: Api, phase: Phase, status: int) -> None:
    api.make("lives")
    start = 1_700_000_000_000
    api.lived(1, phase, (start, start + 532_003))
    detail = api.get("training-jobs/1/versions/1")
    assert (detail["status"], detail["start_time"]) == (status, start)
    if phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CREATE_FAILED):
        assert detail["duration"] == 532_003
    else:
        assert detail["duration"] > 532_003


# Lists


@pytest.fixture
def several(api: Api) -> Api:
    for name in ("carol", "alice", "bob"):
        api.make(name)
    api.ok("POST", "training-jobs/2/versions", {"config": COMMAND})  # alice V0002 is number 4
    api.lived(1, Phase.RUNNING, (1_700_000_000_000, None))
    api.lived(3, Phase.SUCCEEDED, (1_700_000_000_000, 1_700_000_060_000))
    return api


def names(answer: Any) -> list[str]:
    return [job["job_name"] for job in answer["jobs"]]


def test_jobs_are_listed_once_by_their_newest_version(several: Api) -> None:
    answer = several.get("training-jobs")
    assert names(answer) == ["alice", "bob", "carol"], "by name, ascending"
    assert answer["job_total_count"] == 3
    assert answer["quotas"] - answer["job_count_limit"] == 3
    alice = answer["jobs"][0]
    assert (alice["job_id"], alice["version_id"], alice["version_count"], alice["status"]) == (2, 4, 2, 7)
    assert {job["version_count"] for job in answer["jobs"][1:]} == {1}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"order": "desc"}, ["carol", "bob", "alice"]),
        ({"sortBy": "create_time"}, ["carol", "bob", "alice"]),
        ({"sortBy": "version_count", "order": "desc", "per_page": 1}, ["alice"]),
        ({"sortBy": "status"}, ["alice", "carol", "bob"]),
        ({"sortBy": "duration", "order": "desc"}, ["carol", "bob", "alice"]),
        ({"sortBy": "job_desc", "per_page": 2}, ["carol", "bob"]),
        ({"per_page": 2, "page": 2}, ["carol"]),
        ({"page": 65535, "per_page": 1000}, []),
        ({"search_content": "LI"}, ["alice"]),
        ({"status": "7"}, ["alice"]),
        ({"status": "8|10"}, ["bob", "carol"]),
        ({"status": "13"}, []),
        ({"workspace_id": "elsewhere"}, []),
        ({"sortBy": "status", "status": "13"}, []),
    ],
)
def test_jobs_are_filtered_sorted_and_paged(several: Api, query: dict[str, Any], expected: list[str]) -> None:
    assert names(several.get("training-jobs", **query)) == expected


@pytest.mark.parametrize(
    "query",
    [
        {"sortBy": "colour"},
        {"order": "up"},
        {"per_page": 0},
        {"per_page": 1001},
        {"page": 0},
        {"page": "x"},
        {"status": "running"},
        {"search_content": "x" * 65},
    ],
)
def test_bad_questions_are_refused(api: Api, query: dict[str, Any]) -> None:
    status, code, message = api.refused("GET", "training-jobs", **query)
    assert (status, code) == (400, "ModelArts.2788")
    assert next(iter(query)) in message


def test_the_overview_of_all_versions(several: Api) -> None:
    several.make("cards", spec_id=2, worker_server_num=3)
    answer = several.get("training-jobs/versions")
    assert [version["version_id"] for version in answer["versions"]] == [5, 4, 3, 2, 1]
    assert (answer["is_success"], answer["total_count"], answer["offset"], answer["limit"]) == (
        True,
        5,
        0,
        20,
    )
    first, finished = answer["versions"][0], answer["versions"][2]
    assert (first["gpu_num"], first["npu_num"], first["flavor_code"]) == (6, 0, "gpu.2x")
    assert (first["version_name"], first["pool_id"], first["version_desc"]) == ("cards", "default", None)
    assert (finished["status"], finished["duration"]) == (10, MINUTE)
    assert finished["end_time"] - finished["start_time"] == MINUTE


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"limit": 0}, [4, 3, 2, 1]),
        ({"limit": 0, "offset": 3}, [1]),
        ({"limit": 2, "offset": 1}, [3, 2]),
        ({"order": "asc", "limit": 1}, [1]),
        ({"sort_by": "job_name", "order": "asc"}, [2, 4, 3, 1]),
        ({"sort_by": "status", "order": "desc", "limit": 2}, [3, 1]),
        ({"status": "7"}, [4, 2]),
        ({"status": "6"}, []),
        ({"pool_id": "elsewhere"}, []),
        ({"pool_id": "default", "limit": 1}, [4]),
    ],
)
def test_the_overview_is_filtered_sorted_and_paged(
    several: Api, query: dict[str, Any], ids: list[int]
) -> None:
    assert [v["version_id"] for v in several.get("training-jobs/versions", **query)["versions"]] == ids


# Jobs of other dialects


def test_a_job_of_another_dialect_reads_in_our_words(stocked: Api) -> None:
    spec = JobSpec(
        name="theirs",
        roles=(Role(name="worker", count=2, resources=Resources(cpu_cores=0.5, memory_bytes=GIB // 2)),),
        code_dir="obs://usr/app",
        boot_file="boot.py",
        parameters=(("lr", "0.1"),),
        inputs=(Channel(name="in", url="obs://usr/data/"),),
        outputs=(Channel(name="out", url="obs://usr/out/"),),
        runtime=RuntimeChoice(engine_name="TensorFlow"),
    )
    stocked.submit(spec)
    detail = stocked.get("training-jobs/1/versions/1")
    assert (detail["app_url"], detail["boot_file_url"]) == ("obs://usr/app", "obs://usr/app/boot.py")
    assert (detail["data_url"], detail["train_url"]) == ("obs://usr/data/", "obs://usr/out/")
    assert detail["parameter"] == [{"label": "lr", "value": "0.1"}]
    assert (detail["worker_server_num"], detail["core"], detail["cpu"]) == (2, "0.5", "0.5")
    assert (detail["engine_id"], detail["version_name"]) == (1, "V0001")
    assert "spec_id" not in detail
    files = stocked.get("training-jobs/1/versions/1/log/file-names")
    assert files == {"is_success": True, "log_file_list": ["theirs.0", "theirs.1"]}


def test_several_inputs_of_another_dialect_are_sources(stocked: Api) -> None:
    channels = tuple(Channel(name=name, url=f"obs://usr/{name}/") for name in ("a", "b"))
    resources = Resources(cpu_cores=1, memory_bytes=GIB)
    spec = JobSpec(name="x", roles=(Role(resources=resources),), command="true", inputs=channels)
    config = config_of(spec)
    assert config.data_url is None
    assert [source.data_url for source in config.data_source or []] == ["obs://usr/a/", "obs://usr/b/"]
    assert config.user_command == "true"
