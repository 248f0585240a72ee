"""The old truncation rules, and the three stories in which they differ (M24-M26)."""

import pytest

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication.truncation import LEADER_EPOCH, Cut, TruncationPolicy
from tidelog.core.types import EpochEnd, EpochEntry
from tidelog.lab.historical_truncation import POLICIES

SHIPPED, HIGH_WATERMARK = "leader-epoch", "high-watermark"
KIP_101, KIP_279 = "kip-101", "kip-279"


def cache(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*pair) for pair in pairs])


def test_shipped_policy_is_the_first() -> None:
    assert next(iter(POLICIES.values())) is LEADER_EPOCH
    assert list(POLICIES) == [SHIPPED, HIGH_WATERMARK, KIP_101, KIP_279]
    assert all(policy.name == name for name, policy in POLICIES.items())


@pytest.mark.parametrize(
    ("name", "asks_first", "fetches_with_epoch"),
    [
        (SHIPPED, False, True),
        (HIGH_WATERMARK, False, False),
        (KIP_101, True, False),
        (KIP_279, True, False),
    ],
)
def test_how_each_policy_queries_the_leader(
    name: str, asks_first: bool, fetches_with_epoch: bool
) -> None:
    policy = POLICIES[name]
    assert (policy.asks_first, policy.fetches_with_epoch) == (asks_first, fetches_with_epoch)


@pytest.mark.parametrize(
    ("name", "kept"), [(SHIPPED, 7), (HIGH_WATERMARK, 4), (KIP_101, 7), (KIP_279, 7)]
)
def test_truncation_before_any_request(name: str, kept: int) -> None:
    assert POLICIES[name].cut_on_following(cache((0, 0)), 7, 4) == kept


@pytest.mark.parametrize("name", POLICIES)
def test_without_any_epoch_all_fall_back_to_the_high_watermark(name: str) -> None:
    assert POLICIES[name].cut_on_following(cache(), 7, 4) == 4


def test_high_watermark_rule_sends_no_request() -> None:
    with pytest.raises(AssertionError, match="sends no request"):
        POLICIES[HIGH_WATERMARK].cut_on_answer(EpochEnd(0, 3), cache((0, 0)), 7, 4)


@pytest.mark.parametrize("name", [KIP_101, KIP_279])
@pytest.mark.parametrize(
    ("end", "cut"),
    [
        pytest.param(None, Cut(4, done=True), id="unknown to the leader: the high watermark"),
        pytest.param(EpochEnd(0, 5), Cut(5, done=True), id="the leader's end of it"),
        pytest.param(EpochEnd(0, 9), Cut(7, done=True), id="never beyond the own end"),
    ],
)
def test_kip_101_and_kip_279_agree(name: str, end: EpochEnd | None, cut: Cut) -> None:
    assert POLICIES[name].cut_on_answer(end, cache((0, 0)), 7, 4) == cut


def test_rules_differ_if_only_one_replica_has_an_epoch() -> None:
    """A leader without epoch 2 returns the end of epoch 1, which the follower lacks.

    KIP-101 then keeps offsets 2-3 of epoch 2 permanently. KIP-279 truncates to the end of the
    previous epoch and sends another request.
    """
    mine, told = cache((0, 0), (2, 2)), EpochEnd(1, 4)
    assert POLICIES[KIP_101].cut_on_answer(told, mine, 6, 0) == Cut(4, done=True)
    assert POLICIES[KIP_279].cut_on_answer(told, mine, 6, 0) == Cut(2, done=False)


# --- stories: two logs as lists of (epoch, record), each rule applied until it is content ----

Log = list[tuple[int, str]]


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


def follow(policy: TruncationPolicy, mine: Log, leaders: Log, leader_epoch: int, hw: int) -> Log:
    """Return the follower's log after it truncated by `policy` and copied the leader's records."""
    known = epochs_of(leaders)
    known.assign(leader_epoch, len(leaders))
    mine = mine[: policy.cut_on_following(epochs_of(mine), len(mine), hw)]
    while policy is not POLICIES[HIGH_WATERMARK]:
        epochs = epochs_of(mine)
        end = known.end_offset_for(epochs.latest, len(leaders))
        agree = end is not None and end.epoch == epochs.latest and end.end_offset >= len(mine)
        if epochs.latest is None or (agree and not policy.asks_first):
            break
        cut = policy.cut_on_answer(end, epochs, len(mine), hw)
        mine = mine[: cut.offset]
        if cut.done and policy.asks_first:
            break
    return mine[: len(leaders)] + leaders[len(mine) :]


@pytest.mark.parametrize(
    ("name", "kept"),
    [(HIGH_WATERMARK, False), (KIP_101, True), (KIP_279, True), (SHIPPED, True)],
)
def test_m24_acknowledged_record_is_lost(name: str, kept: bool) -> None:
    """Both hold m1 and m2, B's HW lags by one; B restarts, then leads, then A returns."""
    policy = POLICIES[name]
    both: Log = [(0, "m1"), (0, "m2")]
    restarted = both[: policy.cut_on_following(epochs_of(both), 2, 1)]
    returned = follow(policy, both, restarted, leader_epoch=1, hw=2)
    assert ((0, "m2") in returned) is kept


@pytest.mark.parametrize(
    ("name", "same"),
    [(HIGH_WATERMARK, False), (KIP_101, True), (KIP_279, True), (SHIPPED, True)],
)
def test_m25_replicas_differ_permanently(name: str, same: bool) -> None:
    """A has m1 and m2 and an HW of 2, B only m1; both die; B returns first and writes m3."""
    leaders: Log = [(0, "m1"), (1, "m3")]
    returned = follow(POLICIES[name], [(0, "m1"), (0, "m2")], leaders, leader_epoch=1, hw=2)
    assert (returned == leaders) is same


@pytest.mark.parametrize(("name", "same"), [(KIP_101, False), (KIP_279, True), (SHIPPED, True)])
def test_m26_consecutive_fast_elections(name: str, same: bool) -> None:
    """KIP-279: the leader lacks the follower's last epoch, and returns an epoch it lacks."""
    leaders: Log = [(0, "a"), (0, "b"), (1, "c"), (1, "d"), (3, "e")]
    mine: Log = [(0, "a"), (0, "b"), (2, "x"), (2, "y")]
    returned = follow(POLICIES[name], mine, leaders, leader_epoch=3, hw=1)
    assert (returned == leaders) is same
