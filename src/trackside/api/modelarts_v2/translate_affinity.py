"""Knows what a required affinity asks for in Trackside's words."""

from trackside.api.modelarts_v2.checks import one_of
from trackside.api.modelarts_v2.wire_create import RequiredAffinity, SelectorRequirement, SelectorTerm
from trackside.domain.affinity import (
    CABINET,
    HOSTNAME,
    HYPERINSTANCE,
    HYPERINSTANCE_GROUP,
    SLICE,
    Affinity,
    Condition,
    Operator,
)
from trackside.domain.errors import Invalid

TOPOLOGY = "networkTopology"
AFFINITY_TYPES = (CABINET, HYPERINSTANCE, TOPOLOGY)
JOB_LEVELS = ("cluster", HYPERINSTANCE_GROUP)
GROUP_LEVELS = (HYPERINSTANCE, SLICE, HYPERINSTANCE_GROUP)
NODE_NAME_FIELD = "metadata.name"
TERMS_MAX = 20
CONDITIONS_MAX = 20
VALUES_MAX = 100
OPERATOR_OF = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.ABSENT,
    "Gt": Operator.ABOVE,
    "Lt": Operator.BELOW,
}
_NO_VALUES = (Operator.EXISTS, Operator.ABSENT)
_NUMBERS = (Operator.ABOVE, Operator.BELOW)
_FIELD = "spec.schedule_policy.required_affinity"


def to_affinity(asked: RequiredAffinity | None) -> Affinity | None:
    """Return which machines a job must have, or say which field cannot be."""
    if asked is None:
        return None
    terms = asked.node_affinity.node_selector_terms if asked.node_affinity else None
    if len(terms or ()) > TERMS_MAX:
        raise Invalid(f"{_FIELD}.node_affinity.nodeSelectorTerms has at most {TERMS_MAX} terms")
    near = _near(asked)
    conditions = tuple(
        _term(term, f"{_FIELD}.node_affinity.nodeSelectorTerms[{i}]") for i, term in enumerate(terms or ())
    )
    affinity = Affinity(
        terms=conditions, within=near.within, group_level=near.group_level, group_size=near.group_size
    )
    return None if affinity == Affinity() else affinity


def _near(asked: RequiredAffinity) -> Affinity:
    """Return how close together the tasks must be."""
    size = asked.affinity_group_size
    if size is not None and size < 1:
        raise Invalid(f"{_FIELD}.affinity_group_size must be at least 1, not {size}")
    job_level = one_of(f"{_FIELD}.job_level", asked.job_level or JOB_LEVELS[0], JOB_LEVELS)
    group_level = one_of(
        f"{_FIELD}.affinity_group_level", asked.affinity_group_level or HYPERINSTANCE, GROUP_LEVELS
    )
    if not asked.affinity_type:
        if size is not None or asked.job_level or asked.affinity_group_level:
            raise Invalid(f"{_FIELD}.affinity_type is missing: use one of {', '.join(AFFINITY_TYPES)}")
        return Affinity()
    kind = one_of(f"{_FIELD}.affinity_type", asked.affinity_type, AFFINITY_TYPES)
    if kind == TOPOLOGY:
        within = HYPERINSTANCE_GROUP if job_level == HYPERINSTANCE_GROUP else None
        return Affinity(within=within, group_level=group_level, group_size=size or 1)
    if job_level == HYPERINSTANCE_GROUP:
        raise Invalid(f"{_FIELD}.job_level {HYPERINSTANCE_GROUP} needs affinity_type {TOPOLOGY}")
    if kind == CABINET and size is None:
        return Affinity(within=CABINET)
    return Affinity(group_level=kind, group_size=size or 1)


def _term(term: SelectorTerm, field: str) -> tuple[Condition, ...]:
    conditions = [
        *(
            _condition(one, f"{field}.matchExpressions[{i}]")
            for i, one in enumerate(term.match_expressions or ())
        ),
        *(_name(one, f"{field}.matchFields[{i}]") for i, one in enumerate(term.match_fields or ())),
    ]
    if not 1 <= len(conditions) <= CONDITIONS_MAX:
        raise Invalid(f"{field} needs 1 to {CONDITIONS_MAX} conditions")
    return tuple(conditions)


def _name(asked: SelectorRequirement, field: str) -> Condition:
    if asked.key != NODE_NAME_FIELD or asked.operator not in ("In", "NotIn"):
        raise Invalid(f"{field} knows the key {NODE_NAME_FIELD} with the operators In and NotIn only")
    found = _condition(asked, field)
    return Condition(key=HOSTNAME, operator=found.operator, values=found.values)


def _condition(asked: SelectorRequirement, field: str) -> Condition:
    operator = OPERATOR_OF[one_of(f"{field}.operator", asked.operator or "", tuple(OPERATOR_OF))]
    values = tuple(asked.values or ())
    if not asked.key:
        raise Invalid(f"{field}.key is missing")
    if operator in _NO_VALUES and values:
        raise Invalid(f"{field}.values must be empty with {asked.operator}")
    if operator in _NUMBERS and (len(values) != 1 or not values[0].lstrip("-").isdecimal()):
        raise Invalid(f"{field}.values must be one whole number with {asked.operator}")
    if operator not in _NO_VALUES and not 1 <= len(values) <= VALUES_MAX:
        raise Invalid(f"{field}.values must have 1 to {VALUES_MAX} entries with {asked.operator}")
    return Condition(key=asked.key, operator=operator, values=values)
