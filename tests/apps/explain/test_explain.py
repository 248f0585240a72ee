"""Each rule of `tidelog explain`, on views made by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.apps.explain.election import after_death
from tidelog.apps.explain.explain import explain
from tidelog.apps.explain.situation import Explanation, Situation, duration, named, offsets
from tidelog.apps.views.partition import PartitionView, ReplicaView

NOW_MS = 100_000


def situation(
    ends: dict[int, int | None],
    *,
    leader: int | None = 1,
    isr: Sequence[int] = (1, 2, 3),
    high_watermark: int = 10,
    min_isr: int = 2,
    alive: Sequence[int] = (1, 2, 3),
    fetched_ms_ago: dict[int, int] | None = None,
    elr: Sequence[int] = (),
    leader_more: dict[str, Any] | None = None,
    epochs: dict[int, list[list[int]]] | None = None,
    **more: Any,
) -> Situation:
    """A partition whose replicas have these log ends; None: the broker did not respond."""
    replicas = []
    for broker, end in ends.items():
        role = "leader" if broker == leader else "follower"
        row = ReplicaView(broker, None, role, broker in isr)
        if end is None:
            row = row._replace(role="unknown", unreachable="no response within 5 s")
        else:
            row = row._replace(
                log_start_offset=0,
                log_end_offset=end,
                high_watermark=min(end, high_watermark),
                last_stable_offset=min(end, high_watermark),
                epochs=(epochs or {}).get(broker, [[4, 0]]),
                recovery_point=0 if broker != leader else end,
                lag=max(0, (ends.get(leader or 0) or 0) - end),
            )
        replicas.append(row)
    view = PartitionView(
        topic="orders",
        partition=0,
        topic_id=None,
        leader=leader,
        leader_epoch=4,
        partition_epoch=7,
        isr=list(isr),
        elr=list(elr),
        min_isr=min_isr,
        replicas=replicas,
        unclean_election=None,
        losses=[],
        lost=[],
    )._replace(**more)
    state = None
    if leader is not None and ends[leader] is not None:
        state = {
            "log_end_offset": ends[leader],
            "high_watermark": high_watermark,
            "maximal_isr": sorted(isr),
            "pending_isr": None,
            "followers": [
                {
                    "broker": broker,
                    "log_end_offset": end,
                    "last_fetch_ms": NOW_MS - (fetched_ms_ago or {}).get(broker, 100),
                    "last_caught_up_ms": NOW_MS - (fetched_ms_ago or {}).get(broker, 100),
                }
                for broker, end in ends.items()
                if broker != leader
            ],
            **(leader_more or {}),
        }
    return Situation(view, frozenset(alive), state, {1: NOW_MS, 2: NOW_MS, 3: NOW_MS})


def about(now: Situation, topic: str) -> list[Explanation]:
    return [each for each in explain(now) if each.topic == topic]


def only(now: Situation, topic: str) -> Explanation:
    (found,) = about(now, topic)
    return found


# -- high watermark --------------------------------------------------------------------------


def test_everything_is_committed() -> None:
    now = situation({1: 10, 2: 10, 3: 10})
    assert only(now, "high-watermark").severity == "ok"
    assert only(now, "isr") == Explanation("isr", "ok", "All 3 replicas are in sync.")
    assert about(now, "loss") == about(now, "damage") == about(now, "lso") == []


def test_high_watermark_waits_for_the_slowest_member_of_the_isr() -> None:
    now = situation({1: 15, 2: 15, 3: 10}, fetched_ms_ago={3: 4_200})
    found = only(now, "high-watermark")
    assert found.severity == "warn"
    assert found.text == (
        "The HW is 10 because the log of broker 3, in the ISR, ends at 10 as far as the leader"
        " knows; the leader's ends at 15. Last fetch: 4.2 s ago."
    )
    assert "5 records above it" in found.detail
    assert "broker 2 15" in found.detail


def test_high_watermark_that_just_moves_is_no_warning() -> None:
    assert only(situation({1: 15, 2: 15, 3: 12}), "high-watermark").severity == "info"


def test_replica_out_of_the_isr_does_not_hold_the_high_watermark() -> None:
    now = situation({1: 15, 2: 15, 3: 3}, isr=(1, 2), high_watermark=15)
    assert only(now, "high-watermark").severity == "ok"


def test_high_watermark_waits_for_a_replica_that_joins() -> None:
    pending = {
        "maximal_isr": [1, 2, 3],
        "pending_isr": {"kind": "expand", "brokers": [3]},
    }
    now = situation({1: 15, 2: 15, 3: 14}, isr=(1, 2), high_watermark=14, leader_more=pending)
    assert (
        "broker 3, which is about to join the ISR, ends at 14" in only(now, "high-watermark").text
    )
    assert any("proposed to add broker 3 to the ISR" in each.text for each in about(now, "isr"))


def test_pending_removal_from_the_isr() -> None:
    pending = {"pending_isr": {"kind": "shrink", "brokers": [2, 3]}}
    now = situation({1: 10, 2: 10, 3: 10}, leader_more=pending)
    assert "proposed to remove brokers 2 and 3 from the ISR" in about(now, "isr")[0].text


def test_new_leader_waits_for_first_fetches() -> None:
    now = situation({1: 15, 2: 15, 3: 15})
    assert now.leader is not None
    followers = [
        {**each, "log_end_offset": None if each["broker"] == 2 else 15} for each in now.followers
    ]
    now = now._replace(leader={**now.leader, "followers": followers})
    found = only(now, "high-watermark")
    assert "waits for the first fetch of broker 2 in it" in found.text
    assert found.severity == "warn"


def test_isr_below_minimum_stops_the_high_watermark_and_acks_all() -> None:
    now = situation({1: 15, 2: 10, 3: 10}, isr=(1,), elr=(2,))
    found = only(now, "high-watermark")
    assert (found.severity, "1 of the 2 replicas" in found.text) == ("bad", True)
    texts = [each.text for each in about(now, "isr")]
    assert "acks=all are rejected (NOT_ENOUGH_REPLICAS)" in texts[0]
    assert any("Eligible leader replicas: broker 2" in text for text in texts)


def test_high_watermark_waits_for_a_flush() -> None:
    now = situation({1: 15, 2: 15, 3: 15})
    rows = [row._replace(recovery_point=10) for row in now.view.replicas]
    found = only(now._replace(view=now.view._replace(replicas=rows)), "high-watermark")
    assert "waits for the leader's flush" in found.text


def test_high_watermark_waits_for_a_replica_that_nearly_caught_up() -> None:
    now = situation({1: 15, 2: 15, 3: 10}, isr=(1, 2))
    assert "also waits for broker 3" in only(now, "high-watermark").text


def test_silent_leader_hides_the_high_watermark() -> None:
    found = only(situation({1: None, 2: 15, 3: 12}), "high-watermark")
    assert found.text == (
        "The HW is unknown: broker 1 leads and did not respond (no response within 5 s)."
    )
    assert found.detail == "The largest HW that a follower knows is 10."


def test_open_transaction_blocks_the_last_stable_offset() -> None:
    now = situation({1: 10, 2: 10, 3: 10})
    rows = [row._replace(last_stable_offset=4) for row in now.view.replicas]
    found = only(now._replace(view=now.view._replace(replicas=rows)), "lso")
    assert "stop at offset 4" in found.text
    assert "6 records" in found.detail


def test_oldest_transaction_names_its_producer() -> None:
    unstable = {
        "offset": 4,
        "producer_id": 2001,
        "producer_epoch": 3,
        "last_write_ms": 1_700_000_000_000,
        "open_transactions": 3,
    }
    now = situation({1: 10, 2: 10, 3: 10}, unstable=unstable)
    rows = [row._replace(last_stable_offset=4) for row in now.view.replicas]
    found = only(now._replace(view=now.view._replace(replicas=rows)), "lso")
    assert found.text.endswith(
        "offset 4: the first record of the oldest open transaction, of producer 2001 (epoch 3)."
    )
    assert "Its newest record here is of 2023-11-14 22:13:20 UTC." in found.detail
    assert "2 more transactions began after it." in found.detail


def test_transaction_that_ended_waits_for_its_marker() -> None:
    now = situation({1: 10, 2: 10, 3: 10}, unstable={"offset": 4, "producer_id": None})
    rows = [row._replace(last_stable_offset=4) for row in now.view.replicas]
    found = only(now._replace(view=now.view._replace(replicas=rows)), "lso")
    assert "a transaction whose marker is not committed yet" in found.text


# -- reassignments ---------------------------------------------------------------------------


def test_reassignment_waits_for_the_replica_that_is_added() -> None:
    moving = {"adding": [3], "removing": [1]}
    now = situation({1: 15, 2: 15, 3: 4}, isr=(1, 2), high_watermark=15, reassignment=moving)
    found = only(now, "reassignment")
    assert found.text == "A reassignment adds broker 3 and removes broker 1."
    assert found.detail == (
        "Broker 3 is not in the ISR yet: its log ends at 4, 11 records behind; its last fetch was"
        " 100 ms ago. The old replicas are removed when all new ones are in the ISR."
    )
    assert found.severity == "info"


@pytest.mark.parametrize("ends", [{1: 15, 2: 15, 3: None}, {1: 15, 2: 15, 3: 4}])
def test_reassignment_that_makes_no_progress_is_a_warning(ends: dict[int, int | None]) -> None:
    moving = {"adding": [3], "removing": []}
    now = situation(ends, isr=(1, 2), reassignment=moving, fetched_ms_ago={3: 60_000})
    assert only(now, "reassignment").severity == "warn"


def test_reassignment_waits_for_enough_of_the_remaining_replicas() -> None:
    moving = {"adding": [], "removing": [1]}
    now = situation({1: 15, 2: 15, 3: 4}, isr=(1, 2), reassignment=moving)
    assert "until more of the remaining replicas are in sync; now broker 2" in (
        only(now, "reassignment").detail
    )


def test_death_during_a_reassignment_follows_the_rules_of_the_controller() -> None:
    moving = {"adding": [3], "removing": [2]}
    now = situation({1: 15, 2: 15, 3: 15}, reassignment=moving)
    after = after_death(now, 1)
    assert (after.leader, after.replicas, after.adding) == (2, (1, 2, 3), (3,))


# -- leader and ISR --------------------------------------------------------------------------


def test_replica_out_of_the_isr_says_since_when_and_why() -> None:
    now = situation({1: 15, 2: 15, 3: 10}, isr=(1, 2), fetched_ms_ago={3: 30_000})
    rows = [
        row._replace(out_for_ms=12_500, why_out="no fetch for 30000 ms") if row.broker == 3 else row
        for row in now.view.replicas
    ]
    found = about(now._replace(view=now.view._replace(replicas=rows)), "isr")[-1]
    assert found.text == "Broker 3 is out of the ISR for 12.5 s: no fetch for 30000 ms."
    assert found.detail == (
        "Its log ends at 10, 5 records behind. Its last fetch was 30.0 s ago. It last had all of"
        " the leader's records 30.0 s ago."
    )
    assert found.severity == "warn"


def test_member_of_the_isr_that_stopped_fetching_may_hang() -> None:
    now = situation({1: 10, 2: 10, 3: None}, fetched_ms_ago={3: 5_000})
    found = only(now, "isr")
    assert found.text == "Broker 3 is in the ISR, but has not fetched for 5.0 s."
    assert "It did not respond: no response within 5 s." in found.detail


def test_member_of_the_isr_that_does_not_respond() -> None:
    found = only(situation({1: 10, 2: 10, 3: None}), "isr")
    assert "is in the ISR, but did not respond: no response within 5 s." in found.text


def test_isr_of_exactly_the_minimum_is_mentioned() -> None:
    texts = [each.text for each in about(situation({1: 10, 2: 10, 3: 3}, isr=(1, 2)), "isr")]
    assert "exactly the 2 replicas that min.insync.replicas requires" in texts[0]


def test_preferred_leader_is_named() -> None:
    assert only(situation({1: 10, 2: 10, 3: 10}), "leader").severity == "ok"
    found = only(situation({1: 10, 2: 10, 3: 10}, leader=2), "leader")
    assert "The preferred leader is broker 1." in found.text


def test_zombie_leader_is_named() -> None:
    now = situation({1: 10, 2: 10, 3: 10})
    rows = [
        row._replace(role="leader", leader_epoch=3) if row.broker == 3 else row
        for row in now.view.replicas
    ]
    found = about(now._replace(view=now.view._replace(replicas=rows)), "leader")[-1]
    assert found.text == (
        "Broker 3 still believes that it leads, in epoch 3; the newest epoch is 4."
    )


def test_without_leader_the_brokers_that_may_lead_are_named() -> None:
    now = situation({1: None, 2: 8, 3: 8}, leader=None, isr=(), elr=(1,), alive=(2, 3))
    assert "Only broker 1 may be elected; not in the cluster: broker 1." in (
        only(now, "leader").text
    )
    isr = about(now, "isr")[0]
    assert isr.text == "The ISR is empty: without a leader no replica can join it."
    assert isr.detail == "Did not respond: broker 1: no response within 5 s."
    assert "the log of broker 1 is." in only(now, "election").detail
    assert only(now, "high-watermark").severity == "bad"
    assert "The first of broker 1 that returns is elected" in only(now, "election").text


def test_without_leader_after_a_lost_log() -> None:
    now = situation({1: None, 2: 8, 3: 8}, leader=None, isr=(), lost=[1], alive=(1, 2, 3))
    assert "Broker 1 started without its log." in only(now, "leader").text
    assert only(now, "damage").severity == "bad"


# -- election --------------------------------------------------------------------------------


def test_next_leader_comes_from_the_isr_and_keeps_committed_records() -> None:
    now = situation({1: 15, 2: 12, 3: 10})
    found = only(now, "election")
    assert found.text == (
        "If broker 1 died now, broker 2 (in the ISR) would lead in epoch 5. No committed record"
        " would be lost."
    )
    assert "3 records above the HW would be lost (offsets 12 to 14)" in found.detail


def test_next_leader_is_the_one_that_the_controller_elects() -> None:
    now = situation({3: 10, 1: 10, 2: 10}, alive=(1, 2))
    after = after_death(now, 1)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 5, (2,))


def test_next_leader_may_come_from_the_elr() -> None:
    now = situation({1: 15, 2: 10, 3: 10}, isr=(1,), elr=(3,))
    assert "broker 3 (in the ELR) would lead" in only(now, "election").text


def test_next_leader_with_too_few_in_sync_is_mentioned() -> None:
    now = situation({1: 10, 2: 10, 3: 3}, isr=(1, 2))
    assert "With 1 replica in sync, acks=all would be rejected" in only(now, "election").text


def test_silent_next_leader_is_doubted() -> None:
    found = only(situation({1: 10, 2: None, 3: 10}), "election")
    assert found.severity == "warn"
    assert (
        "But broker 2 did not respond (no response within 5 s); if it is dead too: broker 3."
        in (found.detail)
    )


def test_unclean_election_would_lose_committed_records() -> None:
    now = situation({1: 15, 2: 6, 3: 8}, isr=(1,), min_isr=1)
    found = only(now, "election")
    assert found.severity == "bad"
    assert "no replica could be elected" in found.text
    assert found.detail.endswith(
        "would choose broker 3, which has the records up to offset 8 (exclusive). It would lose"
        " 2 committed records (offsets 8 to 9) and 5 records above the HW."
    )


def test_unclean_election_of_a_log_that_diverged() -> None:
    """The longer log of an older epoch shares only its start with the leader's."""
    epochs = {1: [[1, 0], [4, 5]], 2: [[1, 0]], 3: [[1, 0]]}
    now = situation({1: 15, 2: 12, 3: 4}, isr=(1,), min_isr=1, epochs=epochs)
    assert "would choose broker 2, which has the records up to offset 5 (exclusive)" in (
        only(now, "election").detail
    )


def test_unclean_election_is_impossible_without_a_live_replica() -> None:
    now = situation({1: 15, 2: None, 3: None}, isr=(1,), alive=(1,))
    assert "not even an unclean election is possible" in only(now, "election").detail


def test_only_replica() -> None:
    found = only(situation({1: 10}, isr=(1,), min_isr=1, alive=(1,)), "election")
    assert found.severity == "info"


# -- losses and damage -----------------------------------------------------------------------

LOSS = {
    "broker": 2,
    "leader_epoch": 4,
    "start": 8,
    "end": 12,
    "high_watermark": 10,
    "committed": 2,
    "restarted_at": None,
    "now_ms": NOW_MS - 3_000,
}


def test_losses_of_committed_records_come_first() -> None:
    truncated = {**LOSS, "broker": 3, "high_watermark": 8, "committed": 0}
    now = situation({1: 10, 2: 8, 3: 8}, losses=[truncated, LOSS])
    bad, normal = about(now, "loss")
    assert bad.text == (
        "Broker 2 dropped offsets 8 to 11 3.0 s ago, when it followed leader epoch 4: 2 records of"
        " them committed."
    )
    assert (bad.severity, normal.severity) == ("bad", "info")


def test_unclean_election_is_named() -> None:
    election = {
        "leader": 1,
        "leader_epoch": 4,
        "old_leader": 2,
        "old_isr": [2],
        "old_elr": [],
        "recovered": False,
    }
    found = only(situation({1: 8, 2: 8, 3: 8}, unclean_election=election), "loss")
    assert found.text == "Broker 1 was elected uncleanly in epoch 4, by an administrator."
    assert found.detail.startswith("Before, broker 2 could be elected.")


def test_damage_is_named() -> None:
    now = situation({1: 10, 2: 10, 3: 10})
    damage = {"offset": 4, "reason": "checksum mismatch"}
    rows = [row._replace(damage=damage) if row.broker == 2 else row for row in now.view.replicas]
    found = only(now._replace(view=now.view._replace(replicas=rows)), "damage")
    assert found.text == "The log of broker 2 is damaged from offset 4 on: checksum mismatch."
    assert found.detail == "It copies the damaged records from the leader."


# -- a Kafka, and words ----------------------------------------------------------------------


def test_a_kafka_is_explained_as_far_as_its_protocol_reports() -> None:
    now = situation({1: 10, 2: None, 3: None}, isr=(1, 2))._replace(leader=None, kafka=True)
    assert "A Kafka broker reports no log end offsets" in only(now, "high-watermark").text
    assert "would lead in epoch 5" in only(now, "election").text
    assert "Kafka's protocol does not say why" not in about(now, "isr")[0].text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (1_999, "1999 ms"), (2_000, "2.0 s"), (300_000, "5 min"), (7_200_000, "2 h")],
)
def test_durations(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_words() -> None:
    assert [named(x) for x in ([], [1], [1, 2], [1, 2, 3])] == [
        "no broker",
        "broker 1",
        "brokers 1 and 2",
        "brokers 1, 2 and 3",
    ]
    assert (offsets(3, 4), offsets(3, 6)) == ("offset 3", "offsets 3 to 5")
