"""Which faults there are, what they may be, and that a seed picks the same ones again."""

from itertools import islice

import pytest

from trackside.cli import chaos as cli
from trackside.domain.chaos import FAULTS, SECONDS_DEFAULT, injection, picks
from trackside.domain.errors import Invalid
from trackside.domain.exchange import ErrandKind

TASKS = ("worker-0", "worker-1", "worker-2", "worker-3")


def test_every_errand_but_stacks_is_a_fault() -> None:
    assert {fault.kind for fault in FAULTS.values()} == set(ErrandKind) - {ErrandKind.STACKS}
    assert all(fault.word == word for word, fault in FAULTS.items())
    assert tuple(FAULTS) == cli.FAULTS  # said twice: importing this costs the command line too much


@pytest.mark.parametrize("word", FAULTS)
def test_what_is_left_out_is_filled_in(word: str) -> None:
    fault = FAULTS[word]
    made = injection(word, "worker-0", seconds=None, amount=None)
    assert made.kind is fault.kind
    assert made.seconds == (SECONDS_DEFAULT if fault.lasts else None)
    assert made.amount == (None if fault.measure is None else fault.measure.default)
    assert made.text.startswith(f"{word} of worker-0")


@pytest.mark.parametrize(
    ("word", "seconds", "amount", "said"),
    [
        ("explode", None, None, "there are kill, freeze"),
        ("kill", 5, None, "over at once"),
        ("kill", None, 0, "1 to 64"),
        ("freeze", None, 3, "has no amount"),
        ("freeze", 0, None, "more than 0"),
        ("freeze", 4000, None, "3,600"),
        ("freeze", float("nan"), None, "more than 0"),
        ("slow", None, 100, "1 to 99"),
        ("slow", None, float("nan"), "1 to 99"),
        ("fill-shm", None, 101, "1 to 100"),
    ],
)
def test_what_makes_no_sense_is_refused(
    word: str, seconds: float | None, amount: float | None, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        injection(word, "worker-0", seconds=seconds, amount=amount)


def test_the_same_seed_and_job_pick_the_same_faults() -> None:
    def first(seed: int, name: str) -> list[tuple[str, str]]:
        return list(islice(picks(seed, name, TASKS, tuple(FAULTS)), 50))

    assert first(7, "llama") == first(7, "llama")
    assert first(7, "llama") != first(8, "llama")
    assert first(7, "llama") != first(7, "bert")
    assert {word for word, _ in first(7, "llama")} == set(FAULTS)
    assert {task for _, task in first(7, "llama")} == set(TASKS)
