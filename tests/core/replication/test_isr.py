"""Maximal ISR (KIP-497): while a change is under way, both sets must be satisfied."""

import pytest
from playbook import A, B, C

from tidelog.core.replication.isr import NO_ISR, Committed, Isr, PendingExpand, PendingShrink
from tidelog.core.types import BrokerId

AB, ABC = frozenset({A, B}), frozenset({A, B, C})


@pytest.mark.parametrize(
    ("isr", "members", "maximal"),
    [
        pytest.param(Committed(AB), AB, AB, id="committed: what the controller confirmed"),
        pytest.param(
            PendingExpand(AB, joining=C, proposed_at=5), AB, ABC, id="expand: stricter at once"
        ),
        pytest.param(
            PendingShrink(ABC, leaving=frozenset({C}), proposed_at=5),
            ABC,
            ABC,
            id="shrink: no looser before it is granted",
        ),
        pytest.param(NO_ISR, frozenset(), frozenset(), id="a follower keeps none"),
    ],
)
def test_maximal_isr(isr: Isr, members: frozenset[BrokerId], maximal: frozenset[BrokerId]) -> None:
    assert (isr.members, isr.maximal) == (members, maximal)


def test_what_is_proposed() -> None:
    assert PendingExpand(AB, joining=C, proposed_at=5).proposed == ABC
    assert PendingShrink(ABC, leaving=frozenset({C}), proposed_at=5).proposed == AB


def test_isrs_are_values() -> None:
    """The model checker hashes them; a proposal on another partition epoch is another one."""
    assert PendingExpand(AB, C, 5) == PendingExpand(AB, C, 5)
    assert len({PendingExpand(AB, C, 5), PendingExpand(AB, C, 6), Committed(AB)}) == 3
