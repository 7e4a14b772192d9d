import itertools
from contextlib import nullcontext

import pytest

from trackside.domain.errors import IllegalTransition
from trackside.domain.phase import FINAL, NEXT, Phase, advance


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Phase, Phase)))
def test_every_unlisted_move_is_refused(old: Phase, new: Phase) -> None:
    with nullcontext() if new in NEXT[old] else pytest.raises(IllegalTransition):
        assert advance(old, new) is new


def test_every_phase_has_its_moves_and_only_final_ones_have_none() -> None:
    assert set(NEXT) == set(Phase)
    assert {phase for phase, moves in NEXT.items() if not moves} == FINAL
