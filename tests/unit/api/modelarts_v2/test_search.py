from typing import Any

import msgspec
import pytest

from trackside.api.modelarts_v2.search import FILTERS, SORT_COLUMN_OF, to_query
from trackside.api.modelarts_v2.wire_request import FILTER_KEYS, FILTER_OPERATORS, SORT_KEYS, JobSearchBody
from trackside.domain.errors import Invalid
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId
from trackside.domain.phase import Phase
from trackside.ports import JobQuery

CALLER = Caller(user="ada", project_id=ProjectId("p1"), role=UserRole.USER)


def query(body: dict[str, Any]) -> JobQuery:
    return to_query(msgspec.convert(body, JobSearchBody), CALLER)


def filtered(key: str, operator: str, *value: str) -> JobQuery:
    return query({"filters": [{"key": key, "operator": operator, "value": list(value)}]})


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        query(body)
    return caught.value.detail


def test_an_empty_search_asks_for_the_newest_of_the_default_workspace() -> None:
    assert query({}) == JobQuery(project_id=CALLER.project_id, workspace_id="0", limit=50)


def test_paging_and_order_are_carried_over() -> None:
    found = query({"offset": 20, "limit": 10, "sort_by": "name", "order": "asc", "workspace_id": "w"})
    assert (found.offset, found.limit, found.sort_by) == (20, 10, "name")
    assert (found.descending, found.workspace_id) == (False, "w")


@pytest.mark.parametrize("sort_by", SORT_COLUMN_OF)
def test_every_order_is_one_the_store_knows(sort_by: str) -> None:
    columns = {"created_at", "name", "phase", "ended_at", "started_at", "owner", "number"}
    assert query({"sort_by": sort_by}).sort_by in columns


def test_filters() -> None:
    assert filtered("name", "like", "a", "b").names_like == ("a", "b")
    assert filtered("name", "in", "a").names == ("a",)
    assert filtered("name", "not", "a").not_names == ("a",)
    assert filtered("id", "in", "x").ids == ("x",)
    assert filtered("user_name", "in", "ada").owners == ("ada",)
    assert filtered("user_name", "not", "ada").not_owners == ("ada",)
    assert filtered("kind", "in", "job").kinds == ("job",)
    assert filtered("job_type", "in", "job").kinds == ("job",)
    assert filtered("pool_id", "in", "p").pool_ids == ("p",)
    assert filtered("description", "like", "text").descriptions_like == ("text",)


def test_one_vendor_phase_is_several_of_ours() -> None:
    assert filtered("phase", "in", "Pending").phases == {Phase.QUEUED, Phase.STARTING}
    assert filtered("status", "in", "Abnormal", "Failed").phases == {
        Phase.LOST,
        Phase.CREATE_FAILED,
        Phase.FAILED,
    }
    assert filtered("phase", "not", "Running").not_phases == {Phase.RUNNING, Phase.RESTARTING}


def test_times_are_milliseconds_or_text() -> None:
    found = filtered("create_time", "between", "1000", "2026-01-31T12:00:00Z")
    assert (found.created_from_ms, found.created_to_ms) == (1000, 1769860800000)
    found = filtered("end_time", "between", "2026-01-31 12:00:00", "2026-01-31T13:00:00+01:00")
    assert found.ended_from_ms == found.ended_to_ms == 1769860800000


def test_filters_narrow_together() -> None:
    filters = [
        {"key": "name", "operator": "like", "value": ["a"]},
        {"key": "name", "operator": "not", "value": ["ab"]},
    ]
    found = query({"filters": filters})
    assert (found.names_like, found.not_names) == (("a",), ("ab",))


@pytest.mark.parametrize(
    ("key", "operator", "value", "said"),
    [
        ("colour", "in", ["x"], "filters[].key must be one of [id name phase"),
        ("name", "is", ["x"], "filters[].operator must be one of [between like in not], not 'is'"),
        ("name", "between", ["a", "b"], "filters[].operator of name must be one of [like in not]"),
        ("phase", "in", ["Sleeping"], "filters[].value of phase must be one of [Creating Pending Running"),
        ("name", "in", [], "needs at least one value"),
        ("create_time", "between", ["1"], "needs two values"),
        ("create_time", "between", ["2", "1"], "from is later than to"),
        ("create_time", "between", ["soon", "1"], "must be milliseconds"),
    ],
)
def test_a_filter_that_is_not_known_says_what_is(
    key: str, operator: str, value: list[str], said: str
) -> None:
    assert said in refusal({"filters": [{"key": key, "operator": operator, "value": value}]})


def test_other_words_that_are_not_known() -> None:
    assert "sort_by must be one of [create_time name" in refusal({"sort_by": "colour"})
    assert "order must be one of [asc desc]" in refusal({"order": "up"})
    assert "train_type must be one of [job]" in refusal({"train_type": "ftjob"})
    assert "tags" in refusal({"tags": [{"key": "a"}]})
    assert "host_ips" in refusal({"host_ips": ["10.0.0.1"]})
    same = {"key": "name", "operator": "in", "value": ["a"]}
    assert "given twice" in refusal({"filters": [same, same]})


@pytest.mark.parametrize(
    "body", [{"offset": -1}, {"limit": 0}, {"limit": 51}, {"limit": "5"}, {"filters": [{"key": "name"}]}]
)
def test_numbers_out_of_bounds_are_refused_by_the_structs(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, JobSearchBody)


def test_what_the_published_api_names_is_what_there_is() -> None:
    assert tuple(FILTERS) == FILTER_KEYS
    assert tuple(SORT_COLUMN_OF) == SORT_KEYS
    assert {operator for known in FILTERS.values() for operator in known} == set(FILTER_OPERATORS)
