"""Which brokers are alive, by their heartbeats to the controller.

Heartbeats are kept in memory. A live session in the store does not prove that a broker is alive:
a broker that no peer can reach could still renew a row in a file. An ended session proves that it
is dead, because a broker stops acting before its session can end. Proof of death (a lock that the
kernel freed with the process) counts at once.

Invariants: a new incarnation of a broker id is admitted only after the older one lost its
leaderships and ISR memberships, or in the same transaction. A broker is unfenced only when it has
applied metadata up to its own registration. Time in which this controller was suspended does not
count as silence of brokers.
"""

from collections.abc import Hashable

from tidelog.core.controller.events import HeartbeatReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import SUPPORTED, FeatureRange
from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    Delete,
    Guard,
    Operation,
    Put,
    Revision,
    SessionId,
)
from tidelog.core.controller.metadata.registrations import (
    NO_EPOCH,
    BrokerRegistration,
    BrokerState,
    Endpoint,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId


def registration_transaction(
    broker: BrokerId,
    session: SessionId,
    incarnation: str,
    endpoints: tuple[Endpoint, ...] = (),
    rack: str | None = None,
    previous_epoch: BrokerEpoch = NO_EPOCH,
    min_insync_replicas: int = 1,
    features: tuple[FeatureRange, ...] = SUPPORTED,
) -> tuple[tuple[Guard, ...], tuple[Operation, ...]]:
    """Return the transaction by which a broker registers; its revision is the broker epoch.

    It fails while an older incarnation's key exists: the broker waits for its end.
    """
    key = keys.broker_id(broker)
    value = values.encode_broker(
        incarnation, endpoints, rack, previous_epoch, min_insync_replicas, features
    )
    return (Guard(key, ABSENT),), (Put(key, value, session),)


def deregistration_transaction(
    broker: BrokerId, dead_epoch: BrokerEpoch
) -> tuple[tuple[Guard, ...], tuple[Operation, ...]]:
    """Delete the key of an incarnation that is proved dead, before its session ends.

    The broker stays registered. A restarted broker holds the lock of its former process, so it
    need not wait for that session to end.
    """
    key = keys.broker_id(broker)
    return (Guard(key, dead_epoch, "create"),), (Delete(key),)


@slotted
class Contact:
    """A broker's last heartbeat."""

    epoch: BrokerEpoch
    last_ms: int
    applied_revision: Revision = 0
    want_fence: bool = False
    want_shut_down: bool = False
    drained_at: Revision | None = None


class BrokerLiveness:
    """Heartbeats and proofs of death, and the broker states that follow from them."""

    __slots__ = ("contacts", "now_ms", "proved_dead", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.contacts: dict[BrokerId, Contact] = {}
        self.proved_dead: dict[BrokerId, BrokerEpoch] = {}
        self.now_ms = 0

    def begin(
        self, image: ClusterImage, former: tuple[BrokerId, BrokerEpoch] | None = None
    ) -> None:
        """Begin a term: every unfenced broker gets a full time-out to send a heartbeat.

        The former controller gets only the rest of one. If its registration has outlived its
        term, it resigned because it had received no heartbeats for `quiet_ms`; brokers that can't
        reach it need new leaders for its partitions.
        """
        self.contacts = {
            broker.id: Contact(broker.epoch, self.now_ms)
            for broker in image.brokers.values()
            if not broker.fenced
        }
        if former is not None:
            contact = self.contacts.get(former[0])
            if contact is not None and contact.epoch == former[1]:
                contact.last_ms -= self.quiet_ms

    def tick(self, now_ms: int) -> None:
        gap = now_ms - self.now_ms
        if gap <= 0:
            return
        if gap > self.quiet_ms:
            # The process was suspended, or the clock jumped. Heartbeats may wait in sockets.
            for contact in self.contacts.values():
                contact.last_ms += gap
        self.now_ms = now_ms

    @property
    def quiet_ms(self) -> int:
        """The time after which a broker counts as silent for `lost_majority`; no time-out yet."""
        return self.session_timeout_ms * 2 // 3

    def receive_heartbeat(self, event: HeartbeatReceived, image: ClusterImage) -> ErrorCode:
        """Record a heartbeat if it is from the current incarnation."""
        known = image.brokers.get(event.broker)
        if known is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        if known.epoch != event.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        contact = self.contacts.get(event.broker)
        if contact is None or contact.epoch != known.epoch:
            contact = self.contacts[event.broker] = Contact(known.epoch, event.now_ms)
        contact.last_ms = max(contact.last_ms, event.now_ms)
        contact.applied_revision = max(contact.applied_revision, event.applied_revision)
        contact.want_fence = event.want_fence
        contact.want_shut_down |= event.want_shut_down
        self.note_drained(image)
        return ErrorCode.NONE

    def note_drained(self, image: ClusterImage) -> None:
        """Note the revision at which stopping brokers left their last ISR."""
        for broker, contact in self.contacts.items():
            if contact.want_shut_down and contact.drained_at is None and image.drained(broker):
                contact.drained_at = image.revision

    def note_death(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        self.proved_dead[broker] = epoch

    def is_dead(self, broker: BrokerRegistration) -> bool:
        return broker.online and self.proved_dead.get(broker.id) == broker.epoch

    def may_stop(self, broker: BrokerId, image: ClusterImage) -> bool:
        """Whether a stopping broker leads nothing, is in no ISR, and all active brokers know it."""
        contact = self.contacts[broker]
        if not contact.want_shut_down:
            return False
        if image.brokers[broker].fenced:
            return True
        drained = contact.drained_at
        return drained is not None and all(
            other in self.contacts and self.contacts[other].applied_revision >= drained
            for other in image.active
        )

    def lost_majority(self, image: ClusterImage, me: BrokerId) -> bool:
        """Whether fewer than half of the unfenced brokers send heartbeats to this controller.

        Then this broker is the one that is cut off. A dead broker does not count for long: it is
        fenced when its session ends.
        """
        alive = [broker for broker in image.brokers.values() if not broker.fenced]
        reachable = [b for b in alive if b.id == me or not self._silent(b, self.quiet_ms)]
        return 2 * len(reachable) < len(alive)

    def next_state(self, broker: BrokerRegistration) -> BrokerState | None:
        """Return the broker's next state; None if it stays as it is."""
        if not broker.online or self.is_dead(broker):
            return None
        if broker.awaits_admission:
            return BrokerState(broker.epoch, fenced=True)
        contact = self.contacts.get(broker.id)
        present = contact is not None and contact.epoch == broker.epoch
        if contact is None or not present or self._silent(broker, self.session_timeout_ms):
            return None if broker.fenced else BrokerState(broker.epoch, fenced=True)
        if broker.fenced:
            ready = contact.applied_revision >= broker.epoch
            stays = contact.want_fence or contact.want_shut_down
            return BrokerState(broker.epoch, fenced=False) if ready and not stays else None
        if contact.want_fence:
            return BrokerState(broker.epoch, fenced=True)
        if contact.want_shut_down and not broker.shutting_down:
            return BrokerState(broker.epoch, fenced=False, shutting_down=True)
        return None

    def _silent(self, broker: BrokerRegistration, limit_ms: int) -> bool:
        contact = self.contacts.get(broker.id)
        return contact is None or self.now_ms - contact.last_ms > limit_ms

    def freeze(self) -> Hashable:
        contacts = (
            (
                b,
                c.epoch,
                c.last_ms,
                c.applied_revision,
                c.want_fence,
                c.want_shut_down,
                c.drained_at,
            )
            for b, c in self.contacts.items()
        )
        return self.now_ms, frozenset(contacts), frozenset(self.proved_dead.items())
