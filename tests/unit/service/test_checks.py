from dataclasses import replace

import pytest

from tests.unit.domain.builders import a_spec
from trackside.domain.errors import Exhausted, Invalid
from trackside.domain.job import Channel, Role
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.service.checks import boot_file_url, check_fits, check_spec, check_total_fits

SMALL = Capacity(cpu_cores=2, memory_bytes=4 * GIB)


def role(count: int = 1, **fields: object) -> Role:
    values = {"cpu_cores": 1, "memory_bytes": GIB} | fields
    return Role(count=count, resources=Resources(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": None}, "needs either a command"),
        ({"command": None, "code_dir": "obs://b/c"}, "needs either a command"),
        ({"command": "x" * 40_000}, "at most 32,768 characters in the command"),
        ({"command": "a\0b"}, "NUL"),
        ({"environments": {"1A": "x"}}, "'1A' is not a name"),
        ({"environments": {"MA_X": "x"}}, "MA_X is reserved"),
        ({"environments": {"A": "x\0"}}, "NUL"),
        ({"environments": {f"A{i}": "x" for i in range(101)}}, "at most 100 environment variables"),
        ({"roles": (role(1025),)}, "at most 1,024 nodes"),
        ({"roles": (role(0),)}, "at least one node"),
        ({"roles": (role(cpu_cores=0),)}, "some CPU and some memory"),
        ({"roles": (Role(name="a b", resources=role().resources),)}, "not a role name"),
        ({"inputs": (Channel(name="../x", url="obs://b/c"),)}, "'../x' is not a name"),
        (
            {
                "inputs": (Channel(name="x", url="obs://b/c"),),
                "outputs": (Channel(name="x", url="obs://b/d"),),
            },
            "two inputs or outputs are called 'x'",
        ),
    ],
)
def test_what_could_never_run_is_refused_with_what_to_change(fields: dict[str, object], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_spec(a_spec(**fields))


def test_a_plain_job_passes_until_one_thing_is_wrong_with_it() -> None:
    spec = a_spec(environments={"A": "b"}, parameters=(("lr", "1"),))
    check_spec(spec)
    with pytest.raises(Invalid, match="NUL"):
        check_spec(replace(spec, environments={"A": "b\0"}))


def test_a_task_larger_than_every_machine_is_refused_with_the_largest() -> None:
    with pytest.raises(Invalid, match=r"needs 3 cores and 1\.0 GiB .* the largest has 2 cores, 4\.0 GiB"):
        check_fits(a_spec(roles=(role(cpu_cores=3),)), [SMALL])
    with pytest.raises(Invalid, match="1 gpu cards"):
        check_fits(a_spec(roles=(role(cards=1, accelerator=Accelerator.GPU),)), [SMALL])
    check_fits(a_spec(roles=(role(cpu_cores=3),)), [])


def test_a_gang_that_could_never_run_at_once_is_refused_with_how_many_could() -> None:
    check_total_fits(a_spec(roles=(role(2),)), [SMALL])
    with pytest.raises(Exhausted, match="room for 2 of worker"):
        check_total_fits(a_spec(roles=(role(3),)), [SMALL])
    check_total_fits(a_spec(roles=(role(3),)), [SMALL, SMALL])
    check_total_fits(a_spec(roles=(role(3),)), [])


def test_boot_files_are_found_below_the_code() -> None:
    spec = a_spec(code_dir="obs://b/code/", boot_file="train.py")
    assert boot_file_url(spec) == "obs://b/code/train.py"
    assert boot_file_url(a_spec(code_dir="/b/code/", boot_file="/b/code/x.py")) == "/b/code/x.py"
