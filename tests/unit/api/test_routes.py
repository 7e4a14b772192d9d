"""Which operation a path means."""

import pytest

from trackside.api.routes import Missed, Routes


def routes() -> Routes[str]:
    table: Routes[str] = Routes()
    table.add("GET", "/v2/{project}/jobs/{job}", "show", dialect=0)
    table.add("DELETE", "/v2/{project}/jobs/{job}", "delete", dialect=0)
    table.add("POST", "/v2/{project}/jobs/search", "search", dialect=0)
    table.add("GET", "/v2/{project}/jobs/search/{page}", "page", dialect=0)
    table.add("GET", "/v2/{owner}/jobs/{name}/logs", "logs", dialect=0)
    table.add("GET", "/api/v1/jobs", "list", dialect=1)
    return table


@pytest.mark.parametrize(
    ("method", "path", "target", "values"),
    [
        ("GET", b"/v2/p/jobs/j", "show", {"project": "p", "job": "j"}),
        ("HEAD", b"/v2/p/jobs/j", "show", {"project": "p", "job": "j"}),
        ("DELETE", b"/v2/p/jobs/j", "delete", {"project": "p", "job": "j"}),
        ("POST", b"/v2/p/jobs/search", "search", {"project": "p"}),
        ("GET", b"/v2/p/jobs/search", "show", {"project": "p", "job": "search"}),
        ("GET", b"/v2/p/jobs/search/2", "page", {"project": "p", "page": "2"}),
        ("GET", b"/v2/p/jobs/search/logs", "page", {"project": "p", "page": "logs"}),
        ("GET", b"/v2/p/jobs/j/logs", "logs", {"owner": "p", "name": "j"}),
        ("GET", b"/v2/a%20b/jobs/%E8%AE%AD", "show", {"project": "a b", "job": "训"}),
        ("GET", b"/v2/p/%6Aobs/j", "show", {"project": "p", "job": "j"}),
        ("GET", b"/v2/p/jobs/a+b", "show", {"project": "p", "job": "a+b"}),
        ("GET", b"/api/v1/jobs", "list", {}),
    ],
)
def test_a_known_path_is_found(method: str, path: bytes, target: str, values: dict[str, str]) -> None:
    assert routes().find(method, path) == (target, values)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        (b"/v2/p/jobs/j/", 0),
        (b"/v2/p/jobs", 0),
        (b"/v2//jobs/j", 0),
        (b"/v2/p/jobs/a%2Fb", 0),
        (b"/v2/p/jobs/a%00", 0),
        (b"/v2/p/jobs/%ff", 0),
        (b"/v2/p/jobs/j/k/l/m", 0),
        (b"/api/v1/pods", 1),
        (b"/other", None),
        (b"/", None),
        (b"*", None),
        (b"", None),
    ],
)
def test_an_unknown_path_belongs_to_whoever_knows_its_beginning(path: bytes, dialect: int | None) -> None:
    assert routes().find("GET", path) == Missed(dialect)


def test_a_known_path_with_another_method_says_which_there_are() -> None:
    found = routes().find("PATCH", b"/v2/p/jobs/search")
    assert found == Missed(0, ("DELETE", "GET", "HEAD", "OPTIONS", "POST"))
    assert routes().find("POST", b"/v2/p/jobs/search/x/y") == Missed(0)


def test_only_get_brings_head() -> None:
    table: Routes[str] = Routes()
    table.add("POST", "/x", "x", dialect=0)
    assert table.find("HEAD", b"/x") == Missed(0, ("OPTIONS", "POST"))


def test_a_long_path_is_found_too() -> None:
    assert routes().find("GET", b"/v2/p/jobs/" + b"j" * 5000) == ("show", {"project": "p", "job": "j" * 5000})


def test_a_route_added_later_is_found() -> None:
    table: Routes[str] = Routes()
    assert table.find("GET", b"/x") == Missed(None)
    table.add("GET", "/x", "x", dialect=0)
    assert table.find("GET", b"/x") == ("x", {})


def test_two_operations_cannot_share_a_route() -> None:
    table = routes()
    with pytest.raises(ValueError, match="two operations answer GET /v2"):
        table.add("GET", "/v2/{a}/jobs/{b}", "again", dialect=0)
