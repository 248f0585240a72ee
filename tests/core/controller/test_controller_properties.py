"""Random events in random order: the store stays valid, and every request is answered.

Brokers crash, restart, lose sessions and stop getting watch events; responses of the store get
lost, and transactions of unknown outcome are applied late. After every revision the invariants
are checked on the store's own history, independently of the state of any controller.
"""

from typing import Any

from cluster_driver import KEY, Cluster, Host
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core.controller import events as on
from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import (
    Compacted,
    OutcomeUnknown,
    TxnAnswer,
    Unavailable,
)
from tidelog.core.controller.metadata.registrations import NEVER_ADMITTED, PartitionRegistration

BROKERS = (1, 2, 3, 4)
MIN_ISR = 2

Action = tuple[str, int, int]


class Chaos:
    """A cluster with random events, whose store is checked after each."""

    def __init__(self) -> None:
        self.cluster = Cluster(*BROKERS)
        self.cluster.create((1, 2, 3), min_insync_replicas=str(MIN_ISR))
        self.cluster.fault = self.fault
        self.next_fault: TxnAnswer | None = None
        self.stage = "before"
        self.limbo: list[StoreTransaction] = []
        self.asked: list[tuple[Host, int]] = []
        self.seen = ClusterImage()
        self.seen.load(self.cluster.store.range(""))

    def fault(self, stage: str, transaction: StoreTransaction) -> TxnAnswer | None:
        if self.next_fault is None or stage != self.stage:
            return None
        answer, self.next_fault = self.next_fault, None
        if stage == "before" and isinstance(answer, OutcomeUnknown):
            self.limbo.append(transaction)
        return answer

    def act(self, name: str, one: int, other: int) -> None:
        getattr(self, name)(BROKERS[one % 4], other)
        self.look()

    def run(self, *_: int) -> None:
        self.cluster.run()

    def crash(self, broker: int, _: int) -> None:
        if broker in self.cluster.hosts and len(self.cluster.hosts) > 1:
            self.cluster.crash(broker)

    def start(self, broker: int, other: int) -> None:
        if broker not in self.cluster.hosts:
            known = self.seen.brokers[broker].admitted_epoch
            self.cluster.start(broker, known if other % 2 else -1)

    def lose_session(self, broker: int, _: int) -> None:
        """The process survives: it registers again and proves that it kept its data."""
        host = self.cluster.hosts.get(broker)
        if host is not None:
            self.cluster.store.expire(host.session)
            self.start_again(broker, host.epoch)

    def start_again(self, broker: int, epoch: int) -> None:
        del self.cluster.hosts[broker]
        self.cluster.start(broker, epoch)

    def deafen(self, broker: int, _: int) -> None:
        self.cluster.deaf.add(broker)

    def listen(self, broker: int, _: int) -> None:
        self.cluster.deaf.discard(broker)

    def lose_answer(self, _: int, other: int) -> None:
        self.next_fault = Unavailable() if other % 3 == 0 else OutcomeUnknown()
        self.stage = "after" if other % 3 == 2 else "before"

    def land_late(self, *_: int) -> None:
        if self.limbo:
            late = self.limbo.pop(0)
            self.cluster.store.txn(late.guards, late.ops)

    def time_passes(self, broker: int, other: int) -> None:
        self.cluster.tick(1000 * (1 + other % 3), broker, heartbeats=False)
        for number in sorted(set(self.cluster.hosts) - {broker}):
            self.beat(number, other)

    def beat(self, broker: int, other: int) -> None:
        host = self.cluster.hosts.get(broker)
        if host is not None:
            fence, stop = other % 7 == 0, other % 11 == 0
            now = self.cluster.now_ms
            beat = (broker, host.epoch, host.image.revision, now, fence, stop)
            self.ask(other, lambda number: on.HeartbeatReceived(number, *beat))

    def propose(self, broker: int, other: int) -> None:
        """Propose an ISR as the leader by this image, however old."""
        host = self.cluster.hosts.get(broker)
        if host is None or host.image.partition("t", 0) is None:
            return
        known = host.image.partitions[KEY]
        isr = tuple(
            on.IsrMember(b, host.image.brokers[b].epoch)
            for n, b in enumerate(known.replicas)
            if b == broker or other >> n & 1
        )
        proposal = on.IsrProposal(KEY, known.leader_epoch, known.partition_epoch, isr)
        self.ask(
            other,
            lambda number: on.AlterPartitionReceived(number, broker, host.epoch, (proposal,)),
        )

    def elect(self, _: int, other: int) -> None:
        kind = on.ElectionType.UNCLEAN if other % 4 == 0 else on.ElectionType.PREFERRED
        self.ask(other, lambda number: on.ElectLeadersReceived(number, kind, (KEY,)))

    def lose_log(self, broker: int, other: int) -> None:
        """Report a log as lost or found."""
        host = self.cluster.hosts.get(broker)
        if host is not None:
            keys_told = ((), (KEY,)) if other % 4 == 0 else ((KEY,), ())
            told = (broker, host.epoch, *keys_told)
            self.ask(other, lambda number: on.LogReportsReceived(number, *told))

    def move(self, _: int, other: int) -> None:
        wanted = tuple(b for n, b in enumerate(BROKERS) if other >> n & 1) or None
        self.ask(other, lambda number: on.AlterReassignmentsReceived(number, {KEY: wanted}))

    def ask(self, other: int, make: Any) -> None:
        """Report a leader that lacks records, rightly or not, to the controller."""
        number = self.cluster.number()
        offices = [h.broker for h in self.cluster.hosts.values() if h.controller.is_active]
        if offices:
            to = offices[other % len(offices)]
            self.asked.append((self.cluster.hosts[to], number))
            self.cluster.step(to, make(number))

    def look(self) -> None:
        """Check the store's history one revision at a time."""
        batches = self.cluster.store.watch("", self.seen.revision)
        assert not isinstance(batches, Compacted)
        for batch in batches:
            before = self.seen.partitions.get(KEY)
            admitted = {b.id: b.admitted_epoch for b in self.seen.brokers.values()}
            office = self.seen.controller
            self.seen.apply(batch)
            after = self.seen.partitions[KEY]
            if before is not None and before is not after:
                assert office is not None
                assert after.controller_epoch == office.controller_epoch
                check_change(before, after)
            for broker in self.seen.brokers.values():
                known = admitted.get(broker.id, NEVER_ADMITTED)
                if broker.online and broker.admitted_epoch != known:
                    assert broker.id not in after.isr
                    assert broker.id != after.leader
                    if broker.previous_epoch != known:
                        assert broker.id not in after.elr

    def settle(self) -> None:
        """End all faults, start all brokers: the cluster must settle."""
        self.next_fault = None
        self.cluster.fault = None
        self.cluster.deaf.clear()
        while self.limbo:
            self.land_late()
        for number in BROKERS:
            if number not in self.cluster.hosts:
                self.cluster.start(number, self.seen.brokers[number].admitted_epoch)
        self.cluster.run()
        self.cluster.tick(30_000)
        self.look()


def check_change(before: PartitionRegistration, after: PartitionRegistration) -> None:
    assert after.leader is None or after.leader in after.isr
    assert set(after.isr) <= set(after.replicas)
    assert not set(after.isr) & set(after.elr)
    assert set(after.elr) <= set(after.replicas)
    assert {*after.lost, *after.behind} <= set(after.replicas)
    assert not {*after.lost, *after.behind} & {*after.isr, *after.elr}
    assert not set(after.lost) & set(after.behind)
    assert after.leader is None or not after.lost
    if len(after.isr) >= min(MIN_ISR, len(after.replicas)):
        assert not after.elr
    assert set(after.adding) | set(after.removing) <= set(after.replicas)
    assert after.partition_epoch == before.partition_epoch + 1
    unclean = after.unclean_election != before.unclean_election
    removed = not set(before.replicas) <= set(after.replicas)
    bumped = after.leader != before.leader or removed or unclean
    assert after.leader_epoch == before.leader_epoch + bumped
    fresh = set(after.isr) - set(before.isr)
    if after.leader != before.leader and after.leader is not None and not unclean:
        # A replica whose ISR membership completes a reassignment may lead at once.
        assert after.leader in {*before.isr, *before.elr, *(fresh if removed else ())}
    if unclean:
        assert after.unclean_election is not None
        assert after.unclean_election.leader == after.leader
        assert after.isr == (after.leader,)
        if after.unclean_election.recovered and after.leader in before.lost:
            assert set(after.replicas) <= {*before.lost, *after.behind}
    elif not before.isr and fresh:
        assert fresh <= set(before.elr)


names = st.sampled_from(
    [
        "run", "run", "crash", "start", "lose_session", "deafen", "listen", "lose_answer",
        "land_late", "time_passes", "beat", "propose", "propose", "elect", "move", "lose_log",
    ]
)  # fmt: skip
actions = st.tuples(names, st.integers(0, 3), st.integers(1, 63))


@settings(max_examples=80, deadline=None)
@given(st.lists(actions, max_size=60))
def test_store_stays_consistent_and_every_request_is_answered(steps: list[Action]) -> None:
    chaos = Chaos()
    for name, one, other in steps:
        chaos.act(name, one, other)
    chaos.settle()
    office = chaos.cluster.leader
    assert not office.controller.transactions.busy
    assert not office.controller.transactions.pending
    for host, number in chaos.asked:
        if host in chaos.cluster.hosts.values():
            assert number in host.answers
    stopping = {b for b, c in office.controller.liveness.contacts.items() if c.want_shut_down}
    stopping |= {b.id for b in chaos.seen.brokers.values() if b.shutting_down}
    healthy = {b.id for b in chaos.seen.brokers.values() if b.active}
    assert healthy == set(BROKERS) - stopping
    partition = chaos.seen.partitions[KEY]
    last = set(partition.last_known_elr)
    if not set(partition.replicas) <= set(partition.lost):
        last -= set(partition.lost)
    eligible = set(partition.isr or partition.elr or last)
    if eligible & healthy:
        assert partition.leader in healthy
    assert chaos.cluster.store.get(keys.CONTROLLER)[0] is not None
