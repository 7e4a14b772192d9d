"""Whatever the domain can say is stored and comes back equal."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.persistence.making import make_job, make_spec
from trackside.domain.errors import Invalid
from trackside.domain.event import Event
from trackside.domain.identity import User
from trackside.domain.job import Job, JobSpec, Record, Task
from trackside.persistence import codec

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
INTEGERS = st.integers(-codec.INTEGER_MAX, codec.INTEGER_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
for plain, strategy in ((str, TEXT), (int, INTEGERS), (float, FLOATS)):
    st.register_type_strategy(plain, strategy)

SPECS = st.builds(
    JobSpec,
    annotations=st.dictionaries(TEXT, TEXT, max_size=3),
    environments=st.dictionaries(TEXT, TEXT, max_size=3),
    declared=st.dictionaries(TEXT, JSON, max_size=3),
)
RECORDS = st.lists(st.from_type(Record), max_size=3).map(tuple)
TASKS = st.lists(st.from_type(Task), max_size=3).map(tuple)
JOBS = st.builds(
    Job,
    spec=SPECS,
    records=RECORDS,
    tasks=TASKS,
    past_tasks=TASKS,
    node_counts=st.lists(st.tuples(INTEGERS, INTEGERS), max_size=3).map(tuple),
    deleting=st.booleans(),
)


def row(values: Mapping[str, Any]) -> Any:
    """Stand in for a row of the database."""
    return SimpleNamespace(**values)


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_a_job_comes_back_equal(job: Job) -> None:
    records = [row(codec.record_values(job.id, record)) for record in job.records]
    places = [(task, True) for task in job.past_tasks] + [(task, False) for task in job.tasks]
    tasks = [row(codec.task_values(job.id, task, i, past)) for i, (task, past) in enumerate(places)]
    stored = row(codec.job_values(job) | codec.spec_values(job))
    assert codec.job_of(stored, records, tasks) == job


@settings(max_examples=40, deadline=None)
@given(st.from_type(Event))
def test_an_event_comes_back_equal(event: Event) -> None:
    assert codec.event_of(row(codec.event_values(event))) == event


@settings(max_examples=40, deadline=None)
@given(st.from_type(User))
def test_a_user_comes_back_equal(user: User) -> None:
    assert codec.user_of(row(codec.user_values(user))) == user


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_text_is_refused_exactly_when_it_holds_nul_or_half_a_pair(text: str) -> None:
    bad = "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)
    job = make_job(spec=make_spec(environments={"KEY": text}))
    if bad:
        with pytest.raises(Invalid):
            codec.check_text(text)
        with pytest.raises(Invalid):
            codec.spec_values(job)
    else:
        codec.check_text(text)
        assert codec.spec_values(job)["job_id"] == job.id


def test_a_read_only_mapping_is_stored_as_a_plain_one() -> None:
    job = make_job(spec=make_spec(environments=MappingProxyType({"A": "b"})))
    stored = row(codec.job_values(job) | codec.spec_values(job))
    assert codec.job_of(stored, [], []).spec.environments == {"A": "b"}


def test_a_document_without_the_newest_fields_gets_their_defaults() -> None:
    job = make_job(records=())
    stored = row(codec.job_values(job) | codec.spec_values(job) | {"state": "{}"})
    assert codec.job_of(stored, [], []) == job
