"""Each invariant holds on a healthy state, and reports the violation that it is for."""

from dataclasses import replace

import pytest

from tidelog.core.types import EpochEntry
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.spec.snapshot import (
    ClusterSnapshot,
    ControllerSnapshot,
    History,
    LogEntry,
    ReplicaSnapshot,
)

M1, M2, M3 = LogEntry(0, 0, "m1"), LogEntry(1, 0, "m2"), LogEntry(1, 1, "m3")


def replica(broker: int, *log: LogEntry, hw: int = 1, leads: bool = False) -> ReplicaSnapshot:
    epochs: list[EpochEntry] = []
    for entry in log:
        if not epochs or epochs[-1].epoch < entry.epoch:
            epochs.append(EpochEntry(entry.epoch, entry.offset))
    epoch = max((entry.epoch for entry in log), default=0)
    return ReplicaSnapshot(broker, True, leads, epoch, 0, len(log), hw, epochs, log)


def cluster(*replicas: ReplicaSnapshot, history: History | None = None) -> ClusterSnapshot:
    leader = next((r for r in replicas if r.leads), None)
    controller = ControllerSnapshot(
        leader.broker if leader else None,
        leader.leader_epoch if leader else 0,
        frozenset(r.broker for r in replicas),
    )
    return ClusterSnapshot({r.broker: r for r in replicas}, controller, history or History())


HEALTHY = cluster(
    replica(1, M1, M2, leads=True),
    replica(2, M1),
    history=History([M1], [M1], {0: M1}),
)
LEADS_M1 = replica(1, M1, leads=True)
BROKEN = {
    "hw-below-leo": cluster(replica(1, M1, hw=2)),
    "lso-below-hw": cluster(
        replace(LEADS_M1, last_stable_offset=1, open_transactions=((7, 0),)),
    ),
    "no-transaction-hangs": replace(
        cluster(replace(LEADS_M1, open_transactions=((7, 0),))), unfinished=frozenset({8})
    ),
    "aborted-records-unread": cluster(
        LEADS_M1, history=History(read_committed=[M1], aborted={"m1"})
    ),
    "epochs-monotonic": cluster(replica(1, LogEntry(0, 1, "m1"), LogEntry(1, 0, "m2"))),
    "log-matching": cluster(
        replica(1, M1, M2), replica(2, LogEntry(0, 0, "other"), LogEntry(1, 0, "m2"))
    ),
    "committed-agree": cluster(replica(1, M1, M2, hw=2), replica(2, M1, M3, hw=2)),
    "isr-holds-committed": cluster(replica(1, M1, M2, hw=2, leads=True), replica(2, M1)),
    "leader-complete": cluster(LEADS_M1, history=History(committed={0: M1, 1: M2})),
    "acked-records-survive": cluster(LEADS_M1, history=History(acked=[M1, M2])),
    "consumers-see-no-change": cluster(LEADS_M1, history=History(consumed=[M2])),
    "one-leader-per-epoch": cluster(LEADS_M1, replica(2, M1, leads=True)),
    "logs-agree": cluster(replica(1, M1, M2), replica(2, M1, M3)),
}


def test_every_invariant_has_a_violating_state() -> None:
    assert BROKEN.keys() == INVARIANTS.keys()


@pytest.mark.parametrize("name", INVARIANTS)
def test_invariant_holds_on_a_healthy_cluster(name: str) -> None:
    assert list(INVARIANTS[name](HEALTHY)) == []


@pytest.mark.parametrize("name", INVARIANTS)
def test_invariant_reports_its_violating_state(name: str) -> None:
    assert list(INVARIANTS[name](BROKEN[name]))


def test_records_below_the_log_start_are_not_lost() -> None:
    leader = replace(LEADS_M1, log_start_offset=2, log_end_offset=2, log=(), high_watermark=2)
    picture = cluster(leader, history=History(acked=[M1, M2]))
    assert list(INVARIANTS["acked-records-survive"](picture)) == []


def test_without_a_leader_a_record_survives_on_an_electable_replica() -> None:
    down = replace(LEADS_M1, alive=False, leads=False)
    picture = cluster(down, replica(2), history=History(acked=[M1, M2]))
    (violation,) = INVARIANTS["acked-records-survive"](picture)
    assert violation.what == "acked, then lost: m2 at 1"


def test_epoch_cache_that_lacks_an_epoch_is_a_violation() -> None:
    wrong = replace(replica(1, M1, M3), epochs=[EpochEntry(0, 0)])
    (violation,) = INVARIANTS["epochs-monotonic"](cluster(wrong))
    assert violation.what == "m3 at 1 has epoch 1, the cache says 0"
