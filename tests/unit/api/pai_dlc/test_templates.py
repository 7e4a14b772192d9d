"""Job templates: versions, rules, and jobs made from them."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.api.pai_dlc.harness import WORKER, Api

CONTENT = {"JobType": "PyTorchJob", "UserCommand": "true", "JobSpecs": [WORKER], "Envs": {"A": "1"}}


def make(api: Api, **fields: Any) -> dict[str, Any]:
    body = {"TemplateName": "mine", "WorkspaceId": "w1", "Content": json.dumps(CONTENT), **fields}
    answer: dict[str, Any] = api.ok("POST", "jobtemplates", body)
    return answer


def test_a_template_has_versions(api: Api) -> None:
    made = make(api, Description="first", Metadata={"a": 1})
    path = f"jobtemplates/{made['TemplateId']}"
    assert (made["Version"], made["DefaultVersion"], made["UserId"]) == (1, 1, "ada")
    changed = api.ok("PUT", path, {"Content": {**CONTENT, "Envs": {"A": "2"}}, "TemplateName": "ours"})
    assert (changed["Version"], changed["VersionCreated"], changed["DefaultVersion"]) == (2, True, 1)
    told = api.get(path)
    assert (told["TemplateName"], told["Description"], told["Metadata"]) == ("ours", "first", {"a": 1})
    assert [one["Version"] for one in told["Versions"]] == [1]
    assert told["Versions"][0]["Content"] == CONTENT
    assert api.get(path, Version="2")["Versions"][0]["Content"]["Envs"] == {"A": "2"}
    every = api.get(path, Version="all")
    assert (every["TotalCount"], [one["Version"] for one in every["Versions"]]) == (2, [1, 2])
    assert api.ok("PUT", f"{path}/defaultversion", {"Version": 2})["DefaultVersion"] == 2
    assert api.get(path)["Versions"][0]["Version"] == 2
    named = api.ok("PUT", path, {"Description": "only that"})
    assert (named["VersionCreated"], named["Version"]) == (False, 2)
    third = api.ok("PUT", path, {"Content": CONTENT, "SetAsDefault": True})
    assert (third["Version"], third["DefaultVersion"]) == (3, 3)
    assert api.ok("DELETE", path)["TemplateId"] == made["TemplateId"]
    assert api.refused("GET", path)[:2] == (404, "ResourceNotFound")


def test_changes_at_once_lose_none(api: Api) -> None:
    path = f"jobtemplates/{make(api)['TemplateId']}"

    async def change_all() -> list[tuple[int, Any]]:
        return await asyncio.gather(*(api.acall("PUT", path, {"Content": CONTENT}) for _ in range(8)))

    answers = api.run(change_all())
    assert sorted(answer["Version"] for _, answer in answers) == list(range(2, 10))
    assert api.get(path, Version="all")["TotalCount"] == 9


def test_templates_are_listed(api: Api) -> None:
    ids = [make(api, TemplateName=name, WorkspaceId=f"w-{name}")["TemplateId"] for name in ("b", "a", "c")]
    by_name = {"SortBy": "TemplateName", "Order": "asc"}

    def names(**query: str) -> list[str]:
        found = api.get("jobtemplates", **{**by_name, **query})["JobTemplates"]
        return [one["TemplateName"] for one in found]

    assert names() == ["a", "b", "c"]
    assert names(Order="desc") == ["c", "b", "a"]
    assert names(TemplateName="B") == ["b"]
    assert names(TemplateId=ids[2]) == ["c"]
    assert names(WorkspaceId="w-a") == ["a"]
    assert names(UserId="eve") == []
    assert names(Description="x") == []
    assert names(PageSize="2", PageNumber="2") == ["c"]
    assert api.get("jobtemplates", PageSize="1")["TotalCount"] == 3


def test_a_job_takes_from_its_template_what_it_leaves_out(api: Api) -> None:
    template = make(api, Constraints={"$.UserCommand": "overridable"})["TemplateId"]
    content = {"DisplayName": "made", "TemplateId": template, "JobSpecs": [], "UserCommand": "false"}
    job_id = api.ok("POST", "jobs", content)["JobId"]
    job = api.get(f"jobs/{job_id}")
    assert (job["JobType"], job["UserCommand"], job["Envs"]) == ("PyTorchJob", "false", {"A": "1"})
    assert (job["TemplateId"], job["TemplateVersion"]) == (template, 1)
    assert [one["JobId"] for one in api.get("jobs", TemplateId=template)["Jobs"]] == [job_id]
    assert "LastUsedTime" in api.get(f"jobtemplates/{template}")


def test_the_rules_of_a_template_hold(api: Api) -> None:
    rules = {"$.UserCommand": "locked", "$.WorkspaceId": "required", "$.UserVpc.VpcId": "locked"}
    template = make(api, Constraints=rules)["TemplateId"]
    base = {"DisplayName": "made", "TemplateId": template, "WorkspaceId": "w"}
    api.ok("POST", "jobs", {**base, "UserCommand": "true"})
    for change, message in (
        ({"UserCommand": "false"}, "does not allow UserCommand to be changed"),
        ({"WorkspaceId": None}, "requires WorkspaceId"),
        ({"UserVpc": {"VpcId": "v"}}, "does not allow UserVpc.VpcId"),
        ({"TemplateVersion": 7}, "has no version 7"),
        ({"TemplateId": "tpl0"}, "there is no job template 'tpl0'"),
    ):
        assert message in api.refused("POST", "jobs", {**base, **change})[2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"TemplateName": ""}, "TemplateName is missing"),
        ({"Content": None}, "Content is missing"),
        ({"Content": "{"}, "Content must be a JSON object"),
        ({"Content": "[1]"}, "Content must be a JSON object"),
        ({"Content": {"Priority": 77}}, "Content: Expected int <= 9 - at $.Priority"),
        ({"Constraints": {"$.JobSpecs[0]": "locked"}}, "is not a path such as"),
        ({"Constraints": {"$.UserCommand": "open"}}, "locked, overridable, required"),
    ],
)
def test_templates_that_cannot_be(api: Api, fields: dict[str, Any], message: str) -> None:
    body = {"TemplateName": "mine", "Content": CONTENT, **fields}
    status, code, told = api.refused("POST", "jobtemplates", body)
    assert (status, code) == (400, "InvalidParameter")
    assert message in told


def test_changes_that_cannot_be(api: Api) -> None:
    path = f"jobtemplates/{make(api)['TemplateId']}"
    assert "together with Content" in api.refused("PUT", path, {"Constraints": {}})[2]
    assert "Version is missing" in api.refused("PUT", f"{path}/defaultversion", {})[2]
    assert api.refused("PUT", f"{path}/defaultversion", {"Version": 9})[:2] == (404, "ResourceNotFound")
    assert "a number or all" in api.refused("GET", path, Version="x")[2]
