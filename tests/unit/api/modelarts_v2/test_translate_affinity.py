"""What a required affinity asks for, and which ones are refused."""

from typing import Any

import msgspec
import pytest

from trackside.api.modelarts_v2.translate_affinity import to_affinity
from trackside.api.modelarts_v2.wire_create import RequiredAffinity
from trackside.domain.affinity import Affinity, Condition, Operator
from trackside.domain.errors import Invalid


def asked(**body: Any) -> Affinity | None:
    return to_affinity(msgspec.convert(body, RequiredAffinity))


def selector(**rule: Any) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}


@pytest.mark.parametrize(
    ("body", "affinity"),
    [
        ({}, None),
        ({"affinity_type": "cabinet"}, Affinity(within="cabinet")),
        (
            {"affinity_type": "cabinet", "affinity_group_size": 4},
            Affinity(group_level="cabinet", group_size=4),
        ),
        ({"affinity_type": "hyperinstance"}, Affinity(group_level="hyperinstance", group_size=1)),
        (
            {"affinity_type": "networkTopology", "affinity_group_size": 8},
            Affinity(group_level="hyperinstance", group_size=8),
        ),
        (
            {
                "affinity_type": "networkTopology",
                "affinity_group_size": 2,
                "affinity_group_level": "slice",
                "job_level": "hyperinstanceGroup",
            },
            Affinity(within="hyperinstanceGroup", group_level="slice", group_size=2),
        ),
    ],
)
def test_how_close_together(body: dict[str, Any], affinity: Affinity | None) -> None:
    assert asked(**body) == affinity


def test_terms_of_conditions() -> None:
    terms = [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
                {"key": "gpu", "operator": "Exists"},
            ]
        },
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
    ]
    found = asked(node_affinity={"nodeSelectorTerms": terms})
    assert found is not None
    assert found.terms == (
        (
            Condition(key="zone", operator=Operator.NOT_IN, values=("a", "b")),
            Condition(key="gpu", operator=Operator.EXISTS),
        ),
        (Condition(key="kubernetes.io/hostname", operator=Operator.IN, values=("node-1",)),),
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"affinity_type": "rack"}, "affinity_type must be one of"),
        ({"affinity_group_size": 2}, "affinity_type is missing"),
        ({"affinity_type": "cabinet", "affinity_group_size": 0}, "must be at least 1"),
        (
            {"affinity_type": "cabinet", "job_level": "hyperinstanceGroup"},
            "needs affinity_type networkTopology",
        ),
        (
            {"affinity_type": "networkTopology", "affinity_group_level": "x"},
            "affinity_group_level must be one",
        ),
        ({"node_affinity": {"nodeSelectorTerms": [{}]}}, "needs 1 to 20 conditions"),
        ({"node_affinity": {"nodeSelectorTerms": [{}] * 21}}, "at most 20 terms"),
        ({"node_affinity": selector(operator="In", values=["a"])}, "key is missing"),
        ({"node_affinity": selector(key="a", operator="Is", values=["a"])}, "operator must be one of"),
        ({"node_affinity": selector(key="a", operator="In")}, "1 to 100 entries"),
        ({"node_affinity": selector(key="a", operator="Exists", values=["b"])}, "must be empty"),
        ({"node_affinity": selector(key="a", operator="Gt", values=["b"])}, "one whole number"),
        (
            {"node_affinity": {"nodeSelectorTerms": [{"matchFields": [{"key": "x", "operator": "In"}]}]}},
            "metadata.name",
        ),
    ],
)
def test_what_cannot_be_is_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        asked(**body)
