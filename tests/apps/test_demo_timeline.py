"""The observer's samples become lines with gaps, leaderships, and times in and out of sync."""

from tidelog.apps.demo.history import KILLED, RESTARTED, History
from tidelog.apps.demo.observer import Round, Sample, thinned
from tidelog.apps.demo.timeline import (
    DOWN,
    IN_SYNC,
    OUT,
    LeaderPeriod,
    Span,
    Timeline,
    build_timeline,
    in_sync,
    leader_of,
)

BEGAN = 100.0


def sample(
    leader: int, epoch: int, end: int, isr: tuple[int, ...], *, leads: bool = False, change: int = 0
) -> Sample:
    epochs = ((0, 0), (1, 20))[: epoch + 1]
    return Sample(leader, epoch, change, leads, end, end - 1, isr, epochs)


def rounds() -> list[Round]:
    """Broker 1 leads and is killed; broker 2 leads; broker 1 restarts and becomes in sync."""
    before: dict[int, Sample | None] = {
        1: sample(1, 0, 20, (1, 2), leads=True),
        2: sample(1, 0, 19, (1, 2)),
    }
    gap = {1: None, 2: sample(1, 0, 20, (1, 2))}
    led = {1: None, 2: sample(2, 1, 30, (2,), leads=True, change=1)}
    back = {1: sample(2, 1, 20, (2,), change=1), 2: sample(2, 1, 40, (2,), leads=True, change=1)}
    whole = {
        1: sample(2, 1, 50, (1, 2), change=2),
        2: sample(2, 1, 50, (1, 2), leads=True, change=2),
    }
    seen: list[dict[int, Sample | None]] = [before, before, gap, led]
    seen += [{**back}, {**whole}, {**whole}]
    return [Round(BEGAN + at, samples) for at, samples in enumerate(seen)]


def seen() -> Timeline:
    return build_timeline(history_of(rounds()).events)


def history_of(rounds: list[Round]) -> History:
    history = History()
    history.began_s = BEGAN
    history.add(RESTARTED, BEGAN + 4.0, 1, "restart")
    history.add(KILLED, BEGAN + 2.0, 1, "kill")
    history.add_rounds(rounds)
    return history


def test_a_line_has_a_gap_where_the_broker_did_not_respond() -> None:
    ends = seen().log_ends
    assert ends[1] == [[(0.0, 20), (1.0, 20)], [(4.0, 20), (5.0, 50), (6.0, 50)]]
    assert [len(piece) for piece in ends[2]] == [7]
    assert seen().newest == 50


def test_leadership_begins_when_it_is_first_observed() -> None:
    assert seen().leader_periods == [LeaderPeriod(0, 1, 0.0, 1.0), LeaderPeriod(1, 2, 3.0, 6.0)]
    assert [len(piece) for piece in seen().committed] == [2, 4]


def test_replica_states_cover_the_whole_time() -> None:
    assert seen().states[1] == [
        Span(IN_SYNC, 0.0, 2.0),
        Span(DOWN, 2.0, 4.0),
        Span(OUT, 4.0, 5.0),
        Span(IN_SYNC, 5.0, 6.0),
    ]
    assert seen().states[2] == [Span(IN_SYNC, 0.0, 6.0)]


def test_marks_are_in_order_and_epochs_are_the_last_known() -> None:
    assert [mark.kind for mark in seen().marks] == ["kill", "start"]
    assert seen().epochs == {1: [(0, 0), (1, 20)], 2: [(0, 0), (1, 20)]}


def test_leader_of_an_older_epoch_is_ignored() -> None:
    old = sample(1, 0, 9, (1, 2), leads=True)
    new = sample(2, 1, 9, (2,), leads=True, change=1)
    both = Round(0.0, {1: old, 2: new})
    assert leader_of(both) == new
    assert in_sync(both) == (2,)
    assert leader_of(Round(0.0, {1: None, 2: None})) is None
    assert in_sync(Round(0.0, {1: None})) == ()


def test_a_gap_is_log_end_minus_own_high_watermark() -> None:
    one = sample(1, 0, 9, (1, 2), leads=True)
    rounds = [
        Round(BEGAN + 0.0, {1: one._replace(high_watermark=4), 2: one._replace(high_watermark=9)}),
        Round(BEGAN + 1.0, {1: None, 2: one._replace(high_watermark=7)}),
        Round(BEGAN + 2.0, {1: one._replace(high_watermark=0), 2: None}),
    ]
    gaps = build_timeline(history_of(rounds).events).gaps
    assert gaps == {1: [[(0.0, 5)], [(2.0, 9)]], 2: [[(0.0, 0), (1.0, 2)]]}


def test_no_samples_give_an_empty_timeline() -> None:
    empty = build_timeline(history_of([]).events)
    assert (empty.seconds, empty.brokers, empty.newest) == (0.0, [], 0)


def test_long_observation_keeps_new_samples_and_half_of_the_old() -> None:
    watch = [Round(float(at), {}) for at in range(100)]
    kept = thinned(watch)
    assert len(kept) == 75
    assert kept[25:] == watch[50:]
    assert [each.at_s for each in kept[:3]] == [0.0, 2.0, 4.0]
