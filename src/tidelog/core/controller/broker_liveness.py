"""Which brokers are alive, as far as peers can reach them.

Liveness is what the controller hears by heartbeat, kept in its memory. The store's sessions
do not count as life: a broker that nobody can reach could still renew a row in a file. They
do count as death, because a broker stops acting before its session can end. Proof of death
(a lock that the kernel freed with the process) counts at once.

Always true: a new incarnation of a broker id is admitted only after, or in the transaction
in which, the older one lost its leaderships and ISR places; a broker is unfenced only when
it has applied metadata up to its own registration; time in which this controller itself
stood still counts against nobody.
"""

from collections.abc import Hashable

from tidelog.core.controller.events import HeartbeatReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
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
) -> tuple[tuple[Guard, ...], tuple[Operation, ...]]:
    """What a broker itself writes to register; the revision it commits at is its epoch.

    It fails while an older incarnation's key is there: that one is waited for, never deleted.
    """
    key = keys.broker_id(broker)
    value = values.encode_broker(incarnation, endpoints, rack, previous_epoch, min_insync_replicas)
    return (Guard(key, ABSENT),), (Put(key, value, session),)


def deregistration_transaction(
    broker: BrokerId, dead_epoch: BrokerEpoch
) -> tuple[tuple[Guard, ...], tuple[Operation, ...]]:
    """Clear the key of an incarnation that is proved dead, before its session ends. The broker
    stays registered.

    For a broker that holds the lock its former self held, and so need not wait for it.
    """
    key = keys.broker_id(broker)
    return (Guard(key, dead_epoch, "create"),), (Delete(key),)


@slotted
class Contact:
    """What a broker last said, and when."""

    epoch: BrokerEpoch
    last_ms: int
    applied_revision: Revision = 0
    want_fence: bool = False
    want_shut_down: bool = False
    drained_at: Revision | None = None


class BrokerLiveness:
    """Heartbeats and proofs of death, and what follows for each broker's state."""

    __slots__ = ("contacts", "now_ms", "proved_dead", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.contacts: dict[BrokerId, Contact] = {}
        self.proved_dead: dict[BrokerId, BrokerEpoch] = {}
        self.now_ms = 0

    def begin(self, image: ClusterImage) -> None:
        """A new controller has heard nobody yet: whoever is unfenced gets a full time-out."""
        self.contacts = {
            broker.id: Contact(broker.epoch, self.now_ms)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def tick(self, now_ms: int) -> None:
        gap = now_ms - self.now_ms
        if gap <= 0:
            return
        if gap > self.quiet_ms:
            # Stopped, or the clock jumped. Heartbeats may be waiting to be read.
            for contact in self.contacts.values():
                contact.last_ms += gap
        self.now_ms = now_ms

    @property
    def quiet_ms(self) -> int:
        """Silence that is worrying but not yet a time-out."""
        return self.session_timeout_ms * 2 // 3

    def heard(self, event: HeartbeatReceived, image: ClusterImage) -> ErrorCode:
        """Take note of a heartbeat if it comes from the current incarnation."""
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
        if known.shutting_down and not image.in_isr.get(known.id) and contact.drained_at is None:
            contact.drained_at = image.revision
        return ErrorCode.NONE

    def died(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        self.proved_dead[broker] = epoch

    def is_dead(self, broker: BrokerRegistration) -> bool:
        return broker.online and self.proved_dead.get(broker.id) == broker.epoch

    def may_stop(self, broker: BrokerId, image: ClusterImage) -> bool:
        """It leads nothing, is in no ISR, and every active broker knows that."""
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
        """Fewer than half of the brokers that the store holds for alive are heard here.

        Then it is this broker that is cut off. A dead broker does not count for long: its
        session ends, and with it the store's word that it is alive.
        """
        alive = [broker for broker in image.brokers.values() if not broker.fenced]
        heard = [b for b in alive if b.id == me or not self._silent(b, self.quiet_ms)]
        return 2 * len(heard) < len(alive)

    def next_state(self, broker: BrokerRegistration) -> BrokerState | None:
        """What the broker's state should become; None if it should stay as it is."""
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
