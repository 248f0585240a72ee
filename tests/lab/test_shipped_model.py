"""The model checker over the shipped replication and controller code."""

import pytest

from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.modelcheck.explorer import explore
from tidelog.lab.modelcheck.shipped import invariants
from tidelog.lab.modelcheck.shipped.cluster_model import Bounds, ClusterModel
from tidelog.lab.modelcheck.shipped.local_step import fields_of, frozen_replica
from tidelog.lab.modelcheck.shipped.state import Renamer

SMALL = Bounds(replicas=2, records=1, leader_epoch=1, partition_epoch=2, messages=1)
ONE_DAMAGE = Bounds(2, 1, 2, 3, messages=0, min_insync_replicas=2, damages=1)
LATE_REPLY = ("LeaderWrite(A)", "FollowerAsk(B)", "Deliver(Fetch B->A)")


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        pytest.param(SMALL, 4515, id="two replicas, a message in flight"),
        pytest.param(Bounds(2, 2, 2, 3, 0), 10870, id="two replicas, requests in one step"),
        pytest.param(Bounds(2, 1, 1, 3, 0, restarts=1), 1571, id="a restart"),
        pytest.param(Bounds(3, 1, 1, 1, 0), 3169, id="three replicas"),
    ],
)
def test_shipped_code_holds_in_the_whole_state_space(bounds: Bounds, states: int) -> None:
    found = explore(ClusterModel(bounds), workers=1)
    assert not found.violations
    assert found.complete
    assert found.states == states


def test_every_goal_is_reached() -> None:
    assert explore(ClusterModel(SMALL), workers=1).missed_goals == ()


def test_the_number_of_processes_changes_nothing() -> None:
    alone = explore(ClusterModel(SMALL), workers=1)
    shared = explore(ClusterModel(SMALL), workers=2, fork_from=50)
    assert (alone.states, alone.levels, alone.goals) == (shared.states, shared.levels, shared.goals)


def test_truncation_by_high_watermark_violates_an_invariant() -> None:
    model = ClusterModel(Bounds(2, 2, 2, 3, 1), POLICIES["high-watermark"])
    found = explore(model, workers=1, max_states=60_000, stop_at_violation=True)
    broken = found.violations[invariants.COMMITTED_ON_CANDIDATES]
    last = broken.path[-1].state
    assert invariants.COMMITTED_ON_CANDIDATES in model.violated(last)
    assert any("log=[]" in line for line in model.describe(last))


def test_undetected_loss_in_one_log_keeps_records_known_to_two_replicas() -> None:
    found = explore(ClusterModel(ONE_DAMAGE), workers=1)
    assert not found.violations
    assert found.complete
    assert found.missed_goals == ()


def test_commit_known_only_to_the_damaged_replica_does_not_count() -> None:
    model = ClusterModel(Bounds(2, 1, 2, 2, messages=1, min_insync_replicas=2, damages=1))
    path = (
        "LeaderWrite(A)", "FollowerAsk(B)", "Deliver(Fetch B->A)", "Deliver(FetchReply A->B)",
        "FollowerAsk(B)", "Deliver(Fetch B->A)", "RestartCut(A, 0)", "ControllerFence(B)",
        "Learn(B, 2)", "Learn(A, 2)", "FollowerAsk(B)", "Deliver(Fetch B->A)",
        "Deliver(FetchReply A->B)",
    )  # fmt: skip
    state = next(iter(model.initial()))
    for wanted in path:
        state = next(after for action, after in model.successors(state) if action == wanted)
    assert [log for _, log in state[0]] == [(), ()]
    assert "committed=1" in model.describe(state)[-1]
    assert model.violated(state) == []


def test_a_leader_that_lacks_committed_records_is_replaced() -> None:
    model = ClusterModel(ONE_DAMAGE)
    path = (
        "LeaderWrite(A)", "FollowerAsk(B)", "FollowerAsk(B)", "RestartCut(B, 0)",
        "ControllerFence(A)", "Learn(A, 2)", "Learn(B, 2)", "FollowerAsk(A)", "Report(A)",
    )  # fmt: skip
    state = next(iter(model.initial()))
    for wanted in path:
        state = next(after for action, after in model.successors(state) if action == wanted)
    assert model.describe(state)[-1].startswith("controller: leader=A epoch=2 ISR={A}")


def test_damage_is_bounded() -> None:
    model = ClusterModel(ONE_DAMAGE)
    state = next(iter(model.initial()))
    for wanted in ("LeaderWrite(A)", "FollowerAsk(B)", "RestartCut(B, 0)"):
        state = dict(model.successors(state))[wanted]
    assert not any("Cut" in action for action, _ in model.successors(state))


def test_prologue_runs_first() -> None:
    model = ClusterModel(SMALL, prologue=LATE_REPLY)
    (state,) = model.initial()
    assert [message[0] for message in state[2]] == [1]
    assert "log=[m1@0]" in model.describe(state)[0]


def test_a_renamed_state_is_the_same_state() -> None:
    model = ClusterModel(SMALL)
    (state,) = model.initial()
    for _ in range(6):
        *_, (_, state) = model.successors(state)
    swapped = Renamer([(0, 1, -1), (1, 0, -1)])
    assert model.canonical(state) == swapped.smallest(state)
    assert model.canonical(model.canonical(state)) == model.canonical(state)


def test_frozen_state_of_another_process_can_be_read() -> None:
    fields = (0, 1, (2, 3))
    picture = frozen_replica(fields)
    assert frozen_replica((0, 1, (2, 3))) is picture
    assert fields_of(bytes(bytearray(picture))) == fields
