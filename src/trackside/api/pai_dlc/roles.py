"""Knows what the JobSpecs of a job mean: which roles there are, who leads, who serves, who restarts."""

from collections.abc import Sequence

from trackside.api.pai_dlc.checks import one_of
from trackside.api.pai_dlc.sizes import resources_for
from trackside.api.pai_dlc.wire_create import RESTART_POLICIES, JobSpecBody
from trackside.domain.errors import Invalid
from trackside.domain.job import RestartPolicy, Role, RuntimeChoice
from trackside.service.catalog import Catalog

RESTARTS_MAX = 10  # of one pod, whatever its policy
DEFAULT_TYPE = "Worker"
CHIEFS = ("chief", "master")  # rank 0, and what the policy ChiefWorker looks at
FIRST = (*CHIEFS, "head")  # where the others are told to meet
SERVICES = ("ps", "graphlearn")  # serve the others and never end by themselves
EVALUATOR = "evaluator"

TYPES_OF: dict[str, tuple[str, ...]] = {  # job types that are not here take any role
    "TFJob": ("Chief", "Master", "PS", "Worker", "Evaluator", "GraphLearn"),
    "PyTorchJob": ("Master", "Worker"),
    "XGBoostJob": ("Master", "Worker"),
    "OneFlowJob": ("Master", "Worker"),
    "ElasticBatchJob": ("Master", "Worker"),
    "RayJob": ("Head", "Worker"),  # also Worker-anything
}
POLICY_OF: dict[str, RestartPolicy] = {
    "Always": RestartPolicy.ALWAYS,
    "Never": RestartPolicy.NEVER,
    "OnFailure": RestartPolicy.ON_FAILURE,
    "ExitCode": RestartPolicy.EXIT_CODE,
}


def to_roles(specs: Sequence[JobSpecBody], job_type: str, catalog: Catalog) -> tuple[Role, ...]:
    """Return the roles, the one whose first pod is rank 0 in front."""
    if not specs:
        raise Invalid("JobSpecs is missing: say which pods the job has, such as one Worker")
    roles = [_role(spec, f"JobSpecs[{i}]", job_type, catalog) for i, spec in enumerate(specs)]
    names = [role.name for role in roles]
    if len(set(names)) < len(names):
        raise Invalid("JobSpecs[].Type must differ from one to the next")
    if sum(role.chief for role in roles) > 1:
        raise Invalid("JobSpecs: only one role may be the chief (IsChief, or the type Chief or Master)")
    return tuple(sorted(roles, key=_place))


def _role(spec: JobSpecBody, field: str, job_type: str, catalog: Catalog) -> Role:
    given = spec.type or DEFAULT_TYPE
    _check_type(given, f"{field}.Type", job_type)
    name = given.lower()
    flavor_id, resources = resources_for(spec, field, catalog)
    policy = POLICY_OF[one_of(f"{field}.RestartPolicy", spec.restart_policy or "Never", RESTART_POLICIES)]
    if spec.image:
        catalog.resolve(RuntimeChoice(image=spec.image))  # refuses where images must be known
    return Role(
        name=name,
        count=spec.pod_count or 1,
        resources=resources,
        flavor_id=flavor_id,
        command=spec.user_command or None,
        image=spec.image or None,
        chief=bool(spec.is_chief or spec.is_cheif or name in CHIEFS),
        service=name in SERVICES,
        restart=policy,
        restarts_max=0 if policy is RestartPolicy.NEVER else RESTARTS_MAX,
    )


def _check_type(given: str, field: str, job_type: str) -> None:
    valid = TYPES_OF.get(job_type)
    known = {one.lower() for one in valid or ()}
    if valid is None or given.lower() in known:
        return
    if job_type == "RayJob" and given.lower().startswith("worker-"):
        return
    raise Invalid(f"{field} of a {job_type} must be one of {', '.join(valid)}, not {given[:64]!r}")


def _place(role: Role) -> tuple[bool, bool]:
    return not (role.chief or role.name in FIRST), role.service or role.name == EVALUATOR
