"""What a task can reach and what its environment holds."""

import os
from pathlib import Path

import pytest

from trackside.agent import sandbox
from trackside.agent.sandbox import Identity, NoSuchUser
from trackside.domain.resources import Accelerator, Capacity

SOMEBODY = Identity("somebody", 54321, 54321, drop=True)


def _tree(root: Path, **modes: int) -> None:
    for name, mode in modes.items():
        path = root / name.replace("__", "/")
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that everybody can pass, whatever lies above it."""
    sandbox._covers.cache_clear()
    return tmp_path.resolve()


def _below(covers: list[dict[str, object]], root: Path) -> list[dict[str, object]]:
    return [cover for cover in covers if str(cover["at"]).startswith(str(root) + "/")]


def _open_above(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    real = sandbox._may_pass
    monkeypatch.setattr(
        sandbox, "_may_pass", lambda who, path: real(who, path) if root in path.parents else True
    )


def test_the_topmost_blocking_directory_is_covered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _open_above(monkeypatch, root)
    _tree(root, open__lib=0o755, shut__deep__python=0o755, data__work__job=0o755)
    (root / "shut").chmod(0o700)
    (root / "data").chmod(0o700)
    own = root / "data/work/job"
    covers = sandbox.covers(
        SOMEBODY, [root / "open/lib", root / "shut/deep/python"], own=own, own_root=root / "data/work"
    )
    assert covers == [
        {"at": f"{root}/shut", "binds": [[f"{root}/shut/deep/python"] * 2]},
        {"at": f"{root}/data", "binds": [[str(own), str(own)]]},
    ] or covers == [
        {"at": f"{root}/data", "binds": [[str(own), str(own)]]},
        {"at": f"{root}/shut", "binds": [[f"{root}/shut/deep/python"] * 2]},
    ]


def test_a_private_place_inside_a_shown_one_is_shown_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _open_above(monkeypatch, root)
    _tree(root, home__env__secret__lib=0o755, work__own=0o755)
    (root / "home").chmod(0o700)
    (root / "home/env/secret").chmod(0o700)
    covers = sandbox.covers(
        SOMEBODY,
        [root / "home/env", root / "home/env/secret/lib"],
        own=root / "work/own",
        own_root=root / "work",
    )
    assert [cover["at"] for cover in covers] == [f"{root}/home", f"{root}/home/env/secret"]


def test_symlinks_are_followed_to_what_they_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _open_above(monkeypatch, root)
    _tree(root, shut__python=0o755, work__own=0o755)
    (root / "shut").chmod(0o700)
    (root / "link").symlink_to(root / "shut/python")
    covers = sandbox.covers(SOMEBODY, [root / "link"], own=root / "work/own", own_root=root / "work")
    assert covers == [{"at": f"{root}/shut", "binds": [[f"{root}/shut/python"] * 2]}]


def test_nothing_is_covered_for_ourselves(root: Path) -> None:
    me = Identity("me", os.geteuid(), os.getegid(), drop=False)
    assert sandbox.covers(me, [root], own=root, own_root=root) == []


def test_only_root_changes_users() -> None:
    assert sandbox.identity("nobody", euid=1234).drop is False
    assert sandbox.identity("root", euid=0).drop is False
    assert sandbox.identity("nobody", euid=0) == Identity("nobody", 65534, 65534, drop=True)
    with pytest.raises(NoSuchUser, match="task_user"):
        sandbox.identity("no-such-user-here", euid=0)


def test_the_environment_takes_only_path_and_zone_from_the_agent() -> None:
    built = sandbox.environment(
        who=SOMEBODY,
        key="k",
        home=Path("/home/x"),
        tmp_dir="/tmp/x",
        path_prefix=("/opt/bin",),
        given={"MINE": "1", "HOME": "/chosen", "TRACKSIDE_TASK_KEY": "forged"},
        agent_environment={"PATH": "/bin", "TZ": "Asia/Shanghai", "AWS_SECRET": "s"},
    )
    assert built["PATH"].startswith("/opt/bin:")
    assert built["PATH"].endswith(":/bin")
    assert (built["MINE"], built["HOME"], built["TZ"], built["USER"]) == (
        *("1", "/chosen", "Asia/Shanghai"),
        "somebody",
    )
    assert built["TRACKSIDE_TASK_KEY"] == "k"
    assert "AWS_SECRET" not in built


@pytest.mark.parametrize(
    ("accelerator", "cards", "gpus", "npus", "expected"),
    [
        (Accelerator.NONE, (), 0, 0, {}),
        (Accelerator.NONE, (), 4, 0, {"CUDA_VISIBLE_DEVICES": ""}),
        (Accelerator.GPU, (1, 3), 4, 0, {"CUDA_VISIBLE_DEVICES": "1,3"}),
        (Accelerator.NPU, (0,), 2, 8, {"CUDA_VISIBLE_DEVICES": "", "ASCEND_VISIBLE_DEVICES": "0"}),
    ],
)
def test_a_task_sees_its_own_cards(
    accelerator: Accelerator, cards: tuple[int, ...], gpus: int, npus: int, expected: dict[str, str]
) -> None:
    has = Capacity(cpu_cores=1, memory_bytes=1, gpus=gpus, npus=npus)
    assert sandbox.card_environment(accelerator, cards, has) == expected
