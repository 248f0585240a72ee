"""The five truncation rules: each by examples, and the verdict table with its state counts."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.lab.modelcheck import verdicts
from tidelog.lab.modelcheck.counterexample import render
from tidelog.lab.modelcheck.explorer import explore
from tidelog.lab.modelcheck.published import invariants, truncation_rules
from tidelog.lab.modelcheck.published.async_isr import VALID_HIGH_WATERMARK
from tidelog.lab.modelcheck.published.packed_model import PackedModel
from tidelog.lab.modelcheck.published.packing import Packing, renamings
from tidelog.lab.modelcheck.published.replication import (
    NONE,
    KafkaReplication,
    LeaderAndIsr,
    Quorum,
    Record,
    Replica,
    Size,
)
from tidelog.lab.modelcheck.published.truncation_rules import (
    Kip101,
    Kip279,
    Kip320,
    Kip320FirstTry,
    TruncateToHighWatermark,
    high_watermark_reached_own_epoch,
)

A, B = 0, 1


def replica(
    name: int, epochs: list[int], *, hw: int = 0, epoch: int = 0, leader: int = A
) -> Replica:
    """A replica whose records are numbered 0, 1, ... and have these epochs."""
    log = tuple(Record(number, record_epoch) for number, record_epoch in enumerate(epochs))
    return Replica(name, log, hw, epoch, leader, frozenset({A, B}))


# -- the table ---------------------------------------------------------------------------------


def reproduce(case: verdicts.Case) -> verdicts.Row:
    [row] = verdicts.run([case], workers=2)
    assert row.case.expected is not None
    assert row.as_data() == {
        **row.as_data(),
        "states": row.case.expected.states or row.exploration.states,
        "verdicts": dict.fromkeys(row.verdicts) | dict(row.case.expected.violations),
        "missed_goals": [],
        "reproduced": True,
    }
    return row


def ids(case: verdicts.Case) -> str:
    return f"{case.model} at {case.size}"


@pytest.mark.parametrize("case", verdicts.table(verdicts.TWO_REPLICAS), ids=ids)
def test_two_replicas(case: verdicts.Case) -> None:
    reproduce(case)


@pytest.mark.parametrize("case", verdicts.table(verdicts.TWO_REPLICAS, symmetric=False), ids=ids)
def test_two_replicas_without_symmetry(case: verdicts.Case) -> None:
    reproduce(case)


THREE = verdicts.table(verdicts.THREE_REPLICAS)


def test_three_replicas_kip_320_holds() -> None:
    assert reproduce(THREE[-1]).exploration.holds


@pytest.mark.slow
@pytest.mark.parametrize("case", THREE[:-1], ids=ids)
def test_three_replicas_break_every_earlier_rule(case: verdicts.Case) -> None:
    assert not reproduce(case).exploration.holds


@pytest.mark.slow
def test_three_replicas_kip_320_without_symmetry() -> None:
    reproduce(verdicts.table(verdicts.THREE_REPLICAS, symmetric=False)[-1])


@pytest.mark.slow
@pytest.mark.parametrize("case", verdicts.mutants(), ids=ids)
def test_three_replicas_need_every_rule_of_kip_320(case: verdicts.Case) -> None:
    assert not reproduce(case).exploration.holds


@pytest.mark.parametrize("case", verdicts.mutants(verdicts.TWO_REPLICAS), ids=ids)
def test_two_replicas_hold_without_any_rule_of_kip_320(case: verdicts.Case) -> None:
    [row] = verdicts.run([case], workers=1)
    assert row.exploration.holds


@pytest.mark.parametrize("size", [Size(2, 2, 2, 3), Size(2, 3, 3, 3)], ids=str)
@pytest.mark.parametrize("position", [2, 3, 4], ids=["kip-279", "first-try", "kip-320"])
@pytest.mark.slow
def test_two_replicas_with_more_epochs_and_records(size: Size, position: int) -> None:
    reproduce(verdicts.table(size)[position])


EXTRA_DEPTHS: list[tuple[type[KafkaReplication], dict[str, int]]] = [
    (
        TruncateToHighWatermark,
        {invariants.FOLLOWER_AGREES: 10, invariants.COMMITTED_AGREE: 13},
    ),
    (Kip101, {invariants.FOLLOWER_AGREES: 10, invariants.COMMITTED_AGREE: 17}),
    (Kip279, {invariants.FOLLOWER_AGREES: 10, invariants.COMMITTED_AGREE: 17}),
    (Kip320FirstTry, {invariants.FOLLOWER_AGREES: 7}),
    (Kip320, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "depths"), EXTRA_DEPTHS)
def test_extra_invariants_with_three_replicas(
    rules: type[KafkaReplication], depths: dict[str, int]
) -> None:
    model = PackedModel(rules(), verdicts.THREE_REPLICAS, extra_invariants=True)
    outcome = explore(model)
    found = {v.invariant: v.depth for v in outcome.violations.values()}
    assert {name: depth for name, depth in found.items() if name in invariants.EXTRA} == depths


def test_a_row_that_differs_is_not_reproduced() -> None:
    right = verdicts.table(verdicts.TWO_REPLICAS)[-1]
    wrong_states = verdicts.Case("x", "x", right.build, verdicts.Expected(2_988, {}))
    wrong_depth = verdicts.Case("x", "x", right.build, verdicts.Expected(2_987, {"WeakIsr": 8}))
    unknown = verdicts.Case("x", "x", right.build, None)
    rows = list(verdicts.run([right, wrong_states, wrong_depth, unknown], workers=1))
    assert [row.reproduced for row in rows] == [True, False, False, True]
    assert verdicts.exit_status(rows) == 1
    assert verdicts.exit_status([rows[0], rows[3]]) == 0


def test_async_isr_row_is_reproduced() -> None:
    [row] = verdicts.run(verdicts.async_isr_cases()[:1], workers=2)
    assert row.reproduced
    assert [
        case.expected and dict(case.expected.violations) for case in verdicts.async_isr_cases()
    ] == [
        {},
        {VALID_HIGH_WATERMARK: 6},
        {VALID_HIGH_WATERMARK: 6},
    ]


# -- counterexamples -----------------------------------------------------------------------------


def test_kip_101_drops_a_committed_record_when_the_leader_knows_no_later_epoch() -> None:
    model = PackedModel(Kip101(), verdicts.TWO_REPLICAS)
    violation = explore(model, workers=1).violations[invariants.STRONG_ISR]
    text = render(model, violation)
    assert text.startswith("# kip-101 breaks StrongIsr\n")
    assert text.split("check StrongIsr\n----\n")[1].splitlines() == [
        "VIOLATED",
        "A leader   epoch=0 LEO=1 HW=1 log=[m0@0] leader=A ISR={A B}",
        "B follower epoch=2 LEO=0 HW=0 log=[] leader=A ISR={A B}",
        "quorum     epoch=2 leader=A ISR={A B}",
    ]
    assert violation.path[-1].action == "BecomeFollower(B of A epoch 2)"


@pytest.mark.parametrize("rules", [TruncateToHighWatermark(), Kip101()], ids=lambda r: r.name)
def test_paths_are_runs_of_the_model_and_do_not_depend_on_workers(rules: KafkaReplication) -> None:
    model = PackedModel(rules, verdicts.TWO_REPLICAS)
    alone = explore(model, workers=1)
    shared = explore(model, workers=2, fork_from=50)
    assert shared.levels == alone.levels
    assert shared.violations == alone.violations
    for violation in alone.violations.values():
        assert len(violation.path) == violation.depth + 1
        assert violation.invariant in model.violated(violation.path[-1].state)
        for before, step in pairwise(violation.path):
            assert (step.action, step.state) in model.successors(before.state)


# -- packing and symmetry --------------------------------------------------------------------------

SIZE = Size(3, 2, 2, 2)
NAMES = st.integers(0, 2)
ISRS = st.frozensets(NAMES)
RECORDS = st.builds(Record, st.integers(0, 1), st.integers(0, 2))
REPLICAS = st.builds(
    Replica,
    st.just(0),
    st.lists(RECORDS, max_size=2).map(tuple),
    st.integers(0, 2),
    st.integers(-1, 2),
    st.sampled_from([NONE, 0, 1, 2]),
    ISRS,
)


@st.composite
def states(draw: st.DrawFn) -> tuple[Quorum, list[Replica]]:
    requests = draw(st.lists(st.tuples(st.sampled_from([NONE, 0, 1, 2]), ISRS), max_size=3))
    issued = tuple(LeaderAndIsr(epoch, *request) for epoch, request in enumerate(requests))
    replicas = [draw(REPLICAS)._replace(name=name) for name in range(3)]
    return Quorum(issued, draw(ISRS), draw(st.integers(0, 2))), replicas


@given(states())
def test_unpacking_restores_the_packed_state(state: tuple[Quorum, list[Replica]]) -> None:
    packing = Packing(SIZE)
    assert packing.unpack(packing.pack(*state)) == state


MODEL = PackedModel(Kip320(), SIZE)
RENAMINGS = renamings(Packing(SIZE), symmetric=True)


@given(states(), st.sampled_from(RENAMINGS))
def test_all_renamings_of_a_state_have_one_canonical_form(
    state: tuple[Quorum, list[Replica]], renaming: Any
) -> None:
    packing = Packing(SIZE)
    packed = packing.pack(*state)
    fields = packing.fields(packed >> packing.quorum_bits)
    quorum = renaming.quorum[packed & (1 << packing.quorum_bits) - 1]
    renamed = renaming.apply(fields) << packing.quorum_bits | quorum
    canonical = MODEL.canonical(packed)
    assert MODEL.canonical(renamed) == canonical
    assert MODEL.canonical(canonical) == canonical


def test_rows_of_the_same_replicas_share_a_worker() -> None:
    [start] = MODEL.initial()
    elected = [s for action, s in MODEL.successors(start) if action.startswith("Controller")]
    assert {MODEL.share(s) for s in elected} == {MODEL.share(start)}


# -- the rules, by examples ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "leader", "follower", "offset"),
    [
        pytest.param(TruncateToHighWatermark(), [0], [0, 0], 1, id="hw: own high watermark"),
        pytest.param(Kip101(), [0, 0], [], 0, id="101: nothing to cut"),
        pytest.param(Kip101(), [], [0, 0], 1, id="101: leader empty, own high watermark"),
        pytest.param(Kip101(), [0], [0, 0], 1, id="101: same last epoch, leader's end"),
        pytest.param(Kip101(), [0, 2], [0, 1], 1, id="101: first offset of a larger epoch"),
        pytest.param(Kip101(), [0, 0], [0, 2], 1, id="101: no larger epoch, own high watermark"),
        pytest.param(Kip279(), [0, 2], [0, 1], 1, id="279: one past the last match"),
        pytest.param(Kip279(), [], [0, 1], 0, id="279: leader empty"),
        pytest.param(Kip279(), [0, 1], [0, 1], 2, id="279: equal logs"),
        pytest.param(Kip279(), [1, 1], [0, 0], 0, id="279: nothing matches"),
    ],
)
def test_truncation_offset(
    rules: KafkaReplication, leader: list[int], follower: list[int], offset: int
) -> None:
    ours = replica(B, follower, hw=min(1, len(follower)))
    assert rules.truncation_offset(replica(A, leader), ours) == offset


def test_kip_101_offset_past_the_end_stops_the_follower() -> None:
    request = LeaderAndIsr(1, A, frozenset({A, B}))
    assert Kip101().become_follower(request, replica(A, [0, 0]), replica(B, [0])) is None


@pytest.mark.parametrize(
    ("log", "hw", "reached"),
    [
        pytest.param([0, 0], 2, True, id="all committed"),
        pytest.param([0, 1], 1, True, id="at its own first record"),
        pytest.param([0, 1], 0, False, id="below a predecessor's record"),
        pytest.param([], 0, True, id="empty"),
    ],
)
def test_high_watermark_reached_own_epoch(log: list[int], hw: int, reached: bool) -> None:
    assert high_watermark_reached_own_epoch(replica(A, log, hw=hw, epoch=1)) is reached


def test_kip_320_refuses_followers_and_leaders_of_another_epoch() -> None:
    leader = replica(A, [0, 1], hw=2, epoch=1)
    stale = replica(B, [0, 1], epoch=0)
    rules = Kip320()
    assert not rules.may_fetch(leader, stale)
    assert not rules.acknowledges(leader, stale, 0)
    assert not rules.may_expand(leader, stale)
    assert rules.may_shrink(leader, stale)
    newer = LeaderAndIsr(2, A, frozenset({A, B}))
    assert rules.become_follower(newer, leader, stale) is None
    assert Kip320(truncation_rules.EPOCH_IN_FETCH).may_fetch(leader, stale)
    assert Kip320(truncation_rules.EPOCH_IN_COMMIT).acknowledges(leader, stale, 0)
    assert Kip320(truncation_rules.EPOCH_IN_EXPAND).may_expand(leader, stale)
    assert (
        Kip320(truncation_rules.EPOCH_IN_TRUNCATION).become_follower(newer, leader, stale)
        is not None
    )


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown rule"):
        Kip320("gravity")


@pytest.mark.parametrize(
    ("bad", "broken"),
    [
        pytest.param({"high_watermark": 3}, invariants.TYPE_OK, id="high watermark out of range"),
        pytest.param({"leader_epoch": 3}, invariants.TYPE_OK, id="epoch out of range"),
        pytest.param({"leader": 3}, invariants.TYPE_OK, id="leader unknown"),
        pytest.param(
            {"high_watermark": 1}, invariants.HIGH_WATERMARK_IN_LOG, id="high watermark in the air"
        ),
    ],
)
def test_shapes_and_ranges_are_checked(bad: dict[str, int], broken: str) -> None:
    fine = Replica(0, (), 0, 0, A, frozenset({A}))
    assert invariants.broken_by_replica(fine, SIZE) == ()
    assert broken in invariants.broken_by_replica(fine._replace(**bad), SIZE)  # type: ignore[arg-type]


def test_leader_outside_the_isr_is_a_violation() -> None:
    quorum = Quorum((LeaderAndIsr(0, A, frozenset({A, B})),), frozenset({B}), 0)
    assert invariants.broken_by_quorum(quorum, SIZE) == (invariants.LEADER_IN_ISR,)
    assert invariants.broken_by_quorum(quorum._replace(isr=frozenset({A})), SIZE) == ()
    assert invariants.broken_by_quorum(quorum._replace(next_record_id=3), SIZE) == (
        invariants.TYPE_OK,
        invariants.LEADER_IN_ISR,
    )
