"""Who may do what: one place decides, Deny wins, what nothing allows is denied."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.domain.errors import Invalid
from trackside.domain.identity import UserRole
from trackside.domain.policy import (
    Book,
    Condition,
    Effect,
    Operator,
    Policy,
    Statement,
    Thing,
    decide,
    like,
)
from trackside.domain.policy_document import read_policy, write_policy
from trackside.domain.roles import BUILT_IN, permits

GET, LIST, DELETE = "modelarts:trainJob:get", "modelarts:trainJob:list", "paidlc:DeleteJob"
TEAM = "g:ResourceTag/team"
JOB_A = Thing(
    names=("trainJob:id-a", "trainJob:llama", "pool:p1"),
    attributes={
        TEAM: "a",
        "modelarts:poolId": "p1",
        "modelarts:poolType": "dedicated",
        "trackside:own": "true",
    },
)
JOB_B = Thing(
    names=("trainJob:id-b", "trainJob:bert", "pool:p2"), attributes={TEAM: "b", "trackside:own": "false"}
)
UNTAGGED = Thing(names=("trainJob:id-c",))


def policy(*statements: dict[str, Any], name: str = "p") -> Policy:
    return read_policy(name, {"Version": "1", "Statement": list(statements)})


def allow(action: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, **more}


def deny(action: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": action, **more}


def may(
    *statements: dict[str, Any], action: str = GET, thing: Thing | None = JOB_A, user: str = "ana"
) -> bool:
    return decide([policy(*statements)], action, user=user, thing=thing).allowed


def test_nothing_allows_nothing() -> None:
    decision = decide([], GET, user="ana", thing=JOB_A)
    assert (decision.allowed, decision.policy, decision.text) == (False, None, "no statement allows it")


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("*", GET, True),
        (GET, GET, True),
        ("modelarts:*", GET, True),
        ("modelarts:trainJob:*", GET, True),
        ("*:get", GET, True),
        ("MODELARTS:trainjob:GET", GET, True),
        ("modelarts:trainJob", GET, False),
        ("modelarts:trainJob:get*", GET, True),
        ("paidlc:Get*", "paidlc:GetJobMetrics", True),
        ("paidlc:get*", "paidlc:GetJobMetrics", True),
        ("paidlc:Get*", "paidlc:ListJobs", False),
    ],
)
def test_actions_match_in_any_case(pattern: str, action: str, matches: bool) -> None:
    assert may(allow(pattern), action=action) is matches


@pytest.mark.parametrize(
    ("resource", "matches"),
    [
        ("*", True),
        ("trainJob:*", True),
        ("trainJob:id-a", True),
        ("trainJob:lla*", True),
        ("trainJob:LLAMA", False),
        ("trainJob:bert", False),
        ("pool:p1", True),
        ("pool:p2", False),
    ],
)
def test_resources_match_exactly(resource: str, matches: bool) -> None:
    assert may(allow(Resource=resource)) is matches


@pytest.mark.parametrize(
    ("operator", "key", "values", "of_a", "of_b", "of_untagged"),
    [
        ("StringEquals", TEAM, "a", True, False, False),
        ("StringEquals", TEAM, ["a", "b"], True, True, False),
        ("StringEquals", TEAM, "A", False, False, False),
        ("StringNotEquals", TEAM, ["a", "c"], False, True, True),
        ("StringLike", TEAM, "a*", True, False, False),
        ("StringNotLike", TEAM, "a*", False, True, True),
        ("StringEquals", "modelarts:poolId", "p1", True, False, False),
        ("StringEquals", "modelarts:poolType", "dedicated", True, False, False),
        ("Bool", "trackside:own", True, True, False, False),
        ("Bool", "trackside:own", "false", False, True, False),
        ("StringEquals", "g:UserName", "ana", True, True, True),
        ("StringLike", "g:UserName", "b*", False, False, False),
    ],
)
def test_conditions(operator: str, key: str, values: Any, of_a: bool, of_b: bool, of_untagged: bool) -> None:
    statement = allow(Condition={operator: {key: values}})
    assert [may(statement, thing=thing) for thing in (JOB_A, JOB_B, UNTAGGED)] == [of_a, of_b, of_untagged]


def test_all_conditions_must_hold() -> None:
    both = {"StringEquals": {TEAM: "a", "modelarts:poolId": "p2"}}
    assert not may(allow(Condition=both))
    assert may(allow(Condition={"StringEquals": {TEAM: "a"}, "Bool": {"trackside:own": True}}))


def test_deny_wins_wherever_it_stands() -> None:
    for statements in ((allow(), deny(GET)), (deny(GET), allow())):
        decision = decide([policy(*statements)], GET, user="ana", thing=JOB_A)
        assert not decision.allowed
        assert "denies it" in decision.text
    late = [policy(allow(), name="first"), policy(deny("*:get", Sid="no reading"), name="second")]
    decision = decide(late, GET, user="ana", thing=JOB_A)
    assert decision.text == "statement 1 (no reading) of the policy second denies it"


def test_the_answer_names_the_first_statement_that_allows() -> None:
    decision = decide([policy(allow(DELETE), allow(GET), allow("*"))], GET, user="ana", thing=None)
    assert (decision.policy, decision.statement) == ("p", 2)
    assert decision.text == "statement 2 of the policy p allows it"


def test_without_a_thing_what_depends_on_it_allows_nothing_and_denies() -> None:
    limited = {"Condition": {"StringEquals": {TEAM: "a"}}}
    assert not may(allow(**limited), action=LIST, thing=None)
    assert not may(allow(Resource="trainJob:*"), action=LIST, thing=None)
    assert not may(allow(), deny(**limited), action=LIST, thing=None)
    assert may(allow(), deny(GET, **limited), action=LIST, thing=None)
    assert may(allow(), deny(**limited), action=GET, thing=JOB_B)
    about_caller = {"Condition": {"StringEquals": {"g:UserName": "ana"}}}
    assert may(allow(**about_caller), action=LIST, thing=None)
    assert may(allow(), deny(**about_caller), action=LIST, thing=None, user="bob")


texts = st.text("ab*", max_size=6)


@given(texts, st.text("ab", max_size=8))
def test_stars_match_as_a_regular_expression_would(pattern: str, text: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert like(pattern, text) is bool(re.fullmatch(expression, text))


def test_many_stars_take_no_time() -> None:
    assert not like("*a" * 100 + "b", "a" * 10_000)


conditions = st.builds(
    Condition,
    operator=st.sampled_from([one for one in Operator if one is not Operator.BOOL]),
    key=st.sampled_from([TEAM, "g:UserName", "modelarts:poolId"]),
    values=st.lists(st.sampled_from(["a", "b", "ana", "p1", "*"]), min_size=1, max_size=2).map(tuple),
)
statements = st.builds(
    Statement,
    effect=st.sampled_from(Effect),
    actions=st.sampled_from([(GET,), ("*",), (DELETE, LIST), ("modelarts:*",)]),
    resources=st.sampled_from([("*",), ("trainJob:llama",), ("pool:p*",)]),
    conditions=st.lists(conditions, max_size=1).map(tuple),
)
policies = st.lists(
    st.builds(Policy, name=st.sampled_from("pq"), statements=st.lists(statements, max_size=3).map(tuple)),
    max_size=3,
)
things = st.sampled_from([None, JOB_A, JOB_B, UNTAGGED])


@given(policies, st.sampled_from([GET, LIST, DELETE]), st.sampled_from(["ana", "bob"]), things, statements)
def test_one_more_statement_moves_a_decision_one_way_only(
    held: list[Policy], action: str, user: str, thing: Thing | None, more: Statement
) -> None:
    before = decide(held, action, user=user, thing=thing).allowed
    after = decide([*held, Policy(name="more", statements=(more,))], action, user=user, thing=thing).allowed
    assert after >= before if more.effect is Effect.ALLOW else after <= before


@given(policies, st.lists(st.tuples(st.sampled_from([GET, LIST, DELETE]), things), max_size=6))
def test_a_book_says_what_decide_says(held: list[Policy], questions: list[tuple[str, Thing | None]]) -> None:
    book = Book(held)
    for action, thing in questions:
        for user in ("ana", "bob"):
            said = book.decide(action, user=user, look=lambda thing=thing: thing)  # type: ignore[misc]
            assert said == decide(held, action, user=user, thing=thing)


def test_a_book_looks_for_the_thing_only_if_it_matters() -> None:
    def never() -> Thing | None:
        raise AssertionError("looked")

    book = Book([policy(allow("modelarts:*"), deny(DELETE, Resource="pool:p1"))])
    assert book.decide(GET, user="ana", look=never).allowed
    assert not book.decide(DELETE, user="ana", look=lambda: JOB_A).allowed


@given(st.lists(statements, min_size=1, max_size=3))
def test_what_is_written_reads_back(many: list[Statement]) -> None:
    one = Policy(name="p", statements=tuple(many))
    assert read_policy("p", write_policy(one)) == one


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "the policy: an object with Version, Statement is expected"),
        ({}, "1 to 100 statements"),
        ({"Statement": []}, "1 to 100 statements"),
        ({"Statement": [allow()] * 101}, "1 to 100 statements"),
        ({"Statement": [allow()], "Extra": 1}, "'Extra' is not known here"),
        ({"Statement": ["x"]}, "Statement[0]: an object with Sid"),
        ({"Statement": [{**allow(), "NotAction": "x"}]}, "'NotAction' is not known here"),
        ({"Statement": [allow(), {"Effect": "allow", "Action": "*"}]}, "Statement[1].Effect: it is Allow or"),
        ({"Statement": [{"Effect": "Allow"}]}, "Statement[0].Action: a text or a list"),
        ({"Statement": [allow([])]}, "Statement[0].Action: a text or a list"),
        ({"Statement": [allow([1])]}, "Statement[0].Action: 1 is not a text"),
        ({"Statement": [allow("get")]}, "'get' is not an action"),
        ({"Statement": [allow(Resource="acs:dlc:*")]}, "is not *, trainJob:… or pool:…"),
        ({"Statement": [allow(Sid=3)]}, "Statement[0].Sid"),
        ({"Statement": [allow(Condition={"IpAddress": {}})]}, "'IpAddress' is not known here"),
        ({"Statement": [allow(Condition={"StringEquals": 1})]}, "keys with their values"),
        ({"Statement": [allow(Condition={"StringEquals": {"g:SourceIp": "x"}})]}, "this key is not known"),
        (
            {"Statement": [allow(Condition={"StringEquals": {"g:ResourceTag/": "x"}})]},
            "this key is not known",
        ),
        ({"Statement": [allow(Condition={"Bool": {"trackside:own": "maybe"}})]}, "Bool takes true or false"),
        ({"Statement": [allow(Condition={"Bool": {TEAM: True}})]}, "goes with Bool"),
        ({"Statement": [allow(Condition={"StringEquals": {"trackside:own": "true"}})]}, "goes with Bool"),
    ],
)
def test_a_document_that_is_wrong_says_where(document: Any, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_policy("p", document)
    assert said in caught.value.detail


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "a" * 65, "策略"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(Invalid, match="not a policy name"):
        read_policy(name, {"Statement": allow()})


def test_keys_are_taken_in_any_case_but_a_tags_own() -> None:
    statement = allow(Condition={"StringEquals": {"G:resourcetag/Team": "a", "modelarts:POOLID": "p1"}})
    keys = [one.key for one in policy(statement).statements[0].conditions]
    assert keys == ["g:ResourceTag/Team", "modelarts:poolId"]


def test_the_roles_are_policies_without_deny() -> None:
    assert set(BUILT_IN) == set(UserRole)
    effects = {one.effect for held in BUILT_IN.values() for one in held.statements}
    assert effects == {Effect.ALLOW}  # a Deny would bite those who are granted more
    assert permits(UserRole.VIEWER, GET)
    assert not permits(UserRole.VIEWER, DELETE)
    assert not permits(UserRole.VIEWER, "paidlc:GetToken")
    assert not permits(UserRole.USER, "trackside:policy:update")
    assert not permits(UserRole.AGENT, GET)
