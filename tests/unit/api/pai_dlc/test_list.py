"""ListJobs: every filter, sort and page; and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.api.dialect_api import PROJECT
from tests.unit.api.pai_dlc.harness import WORKER, Api
from trackside.api.pai_dlc.checks import DAY_MS, time_text
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job
from trackside.domain.rules import Change


def names(api: Api, **query: Any) -> list[str]:
    answer = api.get("jobs", **query)
    assert answer["TotalCount"] >= len(answer["Jobs"])
    return [item["DisplayName"] for item in answer["Jobs"]]


@pytest.fixture
def three(api: Api) -> Api:
    """Three jobs that differ in everything; c is the newest."""
    for name, fields in {
        "a": {
            "WorkspaceId": "w1",
            "Accessibility": "PUBLIC",
            "Settings": {"Tags": {"team": "x", "kind": "big"}, "BusinessUserId": "b1", "Caller": "sdk"},
            "UserCommand": "python Train.py",
        },
        "b": {
            "JobType": "TFJob",
            "ResourceId": "pool2",
            "Settings": {"Tags": {"team": "x"}, "PipelineId": "p1"},
            "JobSpecs": [{**WORKER, "Image": "registry/TF:2", "ResourceConfig": {"CPU": "4"}}],
            "Description": "a long run",
        },
        "c": {
            "JobSpecs": [{**WORKER, "PodCount": 2, "SpotSpec": {"SpotStrategy": "any"}}],
            "Priority": 7,
        },
    }.items():
        job_id = api.make(DisplayName=f"job-{name}", **fields)
        move(api, job_id, {"a": 1, "b": 2, "c": 3}[name] * 10_000)
    return api


def move(api: Api, job_id: str, later_ms: int) -> None:
    def change(job: Job) -> Change:
        return replace(job, created_at_ms=job.created_at_ms - DAY_MS + later_ms), ()

    api.change(job_id, change)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "cba"),
        ({"Order": "asc"}, "abc"),
        ({"SortBy": "DisplayName", "Order": "asc"}, "abc"),
        ({"SortBy": "JobType", "Order": "desc"}, "bca"),
        ({"SortBy": "GmtCreateTime"}, "cba"),
        ({"DisplayName": "JOB-A"}, "a"),
        ({"DisplayName": "job-"}, "cba"),
        ({"DisplayName": "job", "DisplayNameSearchMode": "exact"}, ""),
        ({"DisplayName": "job-b", "DisplayNameSearchMode": "exact"}, "b"),
        ({"JobType": "TFJob"}, "b"),
        ({"JobType": "PyTorchJob"}, "ca"),
        ({"JobType": "RayJob"}, ""),
        ({"Status": "Queuing"}, "cba"),
        ({"Status": "Running"}, ""),
        ({"Status": "Bidding"}, ""),
        ({"WorkspaceId": "w1"}, "a"),
        ({"WorkspaceId": "w1", "FromAllWorkspaces": "True", "ShowOwn": "True"}, "cba"),
        ({"ResourceId": "pool2"}, "b"),
        ({"ResourceIds": "pool1,pool2"}, "b"),
        ({"ResourceQuotaName": "OOL2"}, "b"),
        ({"ShowOwn": "True"}, "cba"),
        ({"ShowOwn": "false"}, "cba"),
        ({"UserIdForFilter": "ada"}, "cba"),
        ({"UserIdForFilter": "eve"}, ""),
        ({"Username": "AD"}, "cba"),
        ({"Username": "x"}, ""),
        ({"Tags": '{"team":"x"}'}, "ba"),
        ({"Tags": '{"team":"x","kind":"big"}'}, "a"),
        ({"Tags": '{"kind":null}'}, "a"),
        ({"Tags": '{"team":"y"}'}, ""),
        ({"Tags": "{}"}, "cba"),
        ({"Accessibility": "PUBLIC"}, "a"),
        ({"Accessibility": "PRIVATE"}, "cb"),
        ({"PaymentType": "PrePaid"}, "b"),
        ({"PaymentType": "PostPaid"}, "a"),
        ({"PaymentType": "Spot"}, "c"),
        ({"BusinessUserId": "b1"}, "a"),
        ({"Caller": "sdk"}, "a"),
        ({"PipelineId": "p1"}, "b"),
        ({"Description": "LONG"}, "b"),
        ({"ImageSearch": "tf"}, "b"),
        ({"UserCommandSearch": "train.py"}, "a"),
        ({"ReasonSearch": "exited"}, ""),
        ({"TemplateId": "tpl"}, ""),
        ({"EnableAssignNode": "true"}, ""),
        ({"EnableAssignNode": "False"}, "cba"),
        ({"OversoldInfo": "ForceQuotaOverSold"}, ""),
        ({"NumericRangeField": "RequestCPU", "NumericRangeMin": "4"}, "b"),
        ({"NumericRangeField": "RequestCPU", "NumericRangeMax": "3"}, "ca"),
        ({"NumericRangeField": "NodeCount", "NumericRangeMin": "2", "NumericRangeMax": "2"}, "c"),
        ({"NumericRangeField": "Priority", "NumericRangeMin": "7"}, "c"),
        ({"JobType": "PyTorchJob", "Tags": '{"team":"x"}'}, "a"),
        ({"PageSize": "2"}, "cb"),
        ({"PageSize": "2", "PageNumber": "2"}, "a"),
        ({"PageSize": "2", "PageNumber": "3"}, ""),
        ({"Accessibility": "PRIVATE", "PageSize": "1", "PageNumber": "2"}, "b"),
        ({"TimeRangeField": "GmtFinishTime"}, ""),
        ({"StartTime": "2020-01-01T00:00:00Z"}, "cba"),
        ({"StartTime": "2020-01-01T00:00:00Z", "EndTime": "2021-01-01T00:00:00Z"}, ""),
        ({"EndTime": "2021-01-01T00:00:00Z"}, ""),
    ],
)
def test_a_filter_finds_what_it_says(three: Api, query: dict[str, str], found: str) -> None:
    assert names(three, **query) == [f"job-{letter}" for letter in found]


def test_ids_are_exact_in_any_case(three: Api) -> None:
    ids = {item["DisplayName"]: item["JobId"] for item in three.get("jobs")["Jobs"]}
    assert names(three, JobId=ids["job-a"].upper()) == ["job-a"]
    assert names(three, JobIds=f"{ids['job-a']}, {ids['job-c']},nobody") == ["job-c", "job-a"]
    assert names(three, JobId=ids["job-b"], JobIds=ids["job-a"]) == ["job-b"]
    assert names(three, JobId="nobody") == []


def test_the_window_is_seven_days_and_counts_all_pages(three: Api) -> None:
    old = three.make(DisplayName="old")
    move(three, old, -7 * DAY_MS)
    assert names(three) == ["job-c", "job-b", "job-a"]
    made = three.job(old).created_at_ms
    window = {"StartTime": time_text(made - 1000), "EndTime": time_text(made + 1000)}
    assert names(three, **window) == ["old"]
    assert three.get("jobs", PageSize="1")["TotalCount"] == 3
    assert three.get("jobs", PageSize="1", Accessibility="PRIVATE")["TotalCount"] == 2


def test_an_ended_job_is_found_by_its_end(three: Api) -> None:
    ids = {item["DisplayName"]: item["JobId"] for item in three.get("jobs")["Jobs"]}
    three.ok("POST", f"jobs/{ids['job-b']}/stop")
    assert names(three, Status="Stopped") == ["job-b"]
    assert names(three, TimeRangeField="GmtFinishTime") == ["job-b"]
    assert names(three, ReasonSearch="STOPPED BY") == ["job-b"]
    assert names(three, SortBy="GmtFinishTime", Status="Stopped") == ["job-b"]
    assert set(names(three, SortBy="Status")) == {"job-a", "job-b", "job-c"}


def test_own_jobs_are_those_of_the_caller(three: Api) -> None:
    three.caller = Caller(user="bob", project_id=PROJECT, role=UserRole.USER)
    three.make(DisplayName="mine")
    assert names(three, ShowOwn="True") == ["mine"]
    assert names(three, ShowOwn="True", UserIdForFilter="ada") == []
    assert len(names(three)) == 4


def test_an_item_writes_some_numbers_as_text(three: Api) -> None:
    item = next(one for one in three.get("jobs")["Jobs"] if one["DisplayName"] == "job-c")
    assert (item["RequestGPU"], item["RequestMemory"], item["NodeCount"]) == ("0", str(4 * 2**30), "2")
    assert (item["RequestCPU"], item["Username"], item["IsDeleted"]) == (2, "ada", False)
    assert (item["Status"], item["Priority"], item["NodeNames"]) == ("Queuing", 7, [])
    assert item["GmtModifiedTime"] >= item["GmtCreateTime"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"Status": "running"}, "Creating, Queuing, EnvPreparing, Running"),
        ({"JobType": "Job"}, "TFJob, PyTorchJob"),
        ({"SortBy": "Size"}, "DisplayName, JobType, Status, GmtCreateTime, GmtFinishTime"),
        ({"Order": "up"}, "desc, asc"),
        ({"PageNumber": "0"}, "PageNumber"),
        ({"PageSize": "x"}, "PageSize"),
        ({"PageSize": "100000"}, "PageSize"),
        ({"StartTime": "yesterday"}, "StartTime must be a UTC time such as"),
        ({"StartTime": "2022-01-02T00:00:00Z", "EndTime": "2022-01-01T00:00:00Z"}, "must be before EndTime"),
        ({"StartTime": "2999-01-01T00:00:00Z"}, "lies in the future"),
        ({"Tags": "a=b"}, "Tags must be a JSON object"),
        ({"Tags": '{"a":1}'}, "Tags must be a JSON object"),
        ({"Accessibility": "ALL"}, "PUBLIC, PRIVATE"),
        ({"PaymentType": "Free"}, "PrePaid, Spot, PostPaid"),
        ({"ShowOwn": "yes"}, "true and false"),
        ({"FromAllWorkspaces": "true"}, "needs ShowOwn=true"),
        ({"NumericRangeMin": "1"}, "NumericRangeField is missing"),
        ({"NumericRangeField": "Age"}, "Duration, NodeCount"),
        ({"TimeRangeField": "GmtModifiedTime"}, "GmtCreateTime, GmtFinishTime"),
        ({"DisplayNameSearchMode": "fuzzy"}, "wildcard, exact"),
    ],
)
def test_bad_input_lists_what_is_valid(api: Api, query: dict[str, str], message: str) -> None:
    status, code, told = api.refused("GET", "jobs", **query)
    assert (status, code) == (400, "InvalidParameter")
    assert message in told
