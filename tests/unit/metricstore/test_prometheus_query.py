"""Selectors, and a server that does not answer."""

import socket

import pytest

from trackside.domain.errors import Unavailable
from trackside.metricstore.prometheus_query import Queries, select
from trackside.metricstore.remote_http import RemoteServer


@pytest.mark.parametrize(
    ("jobs", "task", "metric", "expected"),
    [
        (["a"], None, None, '{job_id="a",metric!=""}'),
        (["a"], "w", None, '{job_id="a",metric!="",task="w"}'),
        (["a"], None, "x/y", '{job_id="a",__name__="trackside_task_x_y",metric="x/y"}'),
        (['a"b\\c'], None, None, '{job_id="a\\"b\\\\c",metric!=""}'),
        (["a", "b.c"], None, None, '{job_id=~"a|b\\\\x{2e}c",metric!=""}'),
    ],
)
def test_selectors_name_exactly_what_is_asked_for(
    jobs: list[str], task: str | None, metric: str | None, expected: str
) -> None:
    assert select(jobs, task=task, metric=metric) == expected


def test_a_server_that_did_not_answer_is_left_alone_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = RemoteServer(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.1)
        queries = Queries(remote)
        with pytest.raises(Unavailable, match="timed out"):
            queries.samples("{}", 0, 1)
        silent.accept()[0].close()
        with pytest.raises(Unavailable, match="a moment ago"):
            queries.samples("{}", 0, 1)
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):  # nobody knocked again
            silent.accept()
        remote.close()
