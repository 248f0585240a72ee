"""How a broker claims and releases the role of controller.

The role is one ephemeral key. Its create revision is the token that guards every write of the
controller, so writes of a controller that was replaced, paused or cut off have no effect. A
counter, incremented in the same transaction, is the controller epoch (revisions may exceed the 32
bits that it has on the wire).

Invariants: at most one claim or release of this broker is in flight; if its response is lost, the
same transaction is sent again, and the store is never read instead.
"""

from collections.abc import Callable, Hashable, Mapping

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_store import (
    ABSENT,
    NO_SESSION,
    Delete,
    Guard,
    OutcomeUnknown,
    Put,
    Revision,
    SessionExpired,
    SessionId,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.controller.metadata.registrations import NO_EPOCH
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId


@slotted
class _Attempt:
    """A transaction on the controller's key that is in flight."""

    transaction: StoreTransaction
    claims: bool
    controller_epoch: int = 0
    outcome_unknown: bool = False
    resend: bool = False


class Candidacy:
    """One broker's claim to the controller's key; `token` is set while it holds the key."""

    __slots__ = (
        "_attempt",
        "_wait_for",
        "broker",
        "broker_epoch",
        "controller_epoch",
        "former",
        "not_before_ms",
        "session",
        "token",
    )

    def __init__(self, broker: BrokerId) -> None:
        self.broker = broker
        self.session: SessionId = NO_SESSION
        self.broker_epoch: BrokerEpoch = NO_EPOCH
        self.token: Revision | None = None
        self.controller_epoch = 0
        self.not_before_ms = 0
        self.former: tuple[BrokerId, BrokerEpoch] | None = None
        """The broker that was last seen as controller, with its broker epoch."""
        self._attempt: _Attempt | None = None
        self._wait_for: Revision = 0

    def open(self, session: SessionId, broker_epoch: BrokerEpoch) -> None:
        self.session = session
        self.broker_epoch = broker_epoch

    def lose_session(self) -> None:
        self.session = NO_SESSION
        self.token = None
        self._attempt = None

    def fenced_at(self, revision: Revision) -> None:
        """Wait until the image has reached this revision: there the role is free or taken."""
        self._wait_for = revision

    def owns(self, tag: int) -> bool:
        return self._attempt is not None and self._attempt.transaction.tag == tag

    def pursue(
        self,
        image: ClusterImage,
        now_ms: int,
        proved_dead: Mapping[BrokerId, BrokerEpoch],
        new_tag: Callable[[], int],
    ) -> StoreTransaction | None:
        """Return a transaction that claims a free key, or frees the key of a dead broker."""
        if self._attempt is not None or image.revision < self._wait_for or self.token is not None:
            return None
        claim = image.controller
        if claim is None:
            willing = self.session != NO_SESSION and now_ms >= self.not_before_ms
            return self._claim(image, new_tag()) if willing else None
        self.former = claim.broker, claim.broker_epoch
        if proved_dead.get(claim.broker) == claim.broker_epoch:
            return self.release(claim.token, new_tag())
        mine = (self.broker, self.broker_epoch, self.session)
        if (claim.broker, claim.broker_epoch, claim.session) == mine:
            # The session was assumed lost but still lives, so this broker is the controller.
            self.token, self.controller_epoch = claim.token, claim.controller_epoch
        return None

    def resend(self) -> StoreTransaction | None:
        """Return the transaction again if its outcome is unknown."""
        attempt = self._attempt
        if attempt is None or not attempt.resend:
            return None
        attempt.resend = False
        return attempt.transaction

    def release(self, token: Revision, tag: int) -> StoreTransaction:
        """Return the transaction that deletes the controller key of one term: this broker's own,
        or that of a broker proved dead."""
        guards = (Guard(keys.CONTROLLER, token, "create"),)
        transaction = StoreTransaction(tag, guards, (Delete(keys.CONTROLLER),))
        self._attempt = _Attempt(transaction, claims=False)
        return transaction

    def answered(self, answer: TxnAnswer) -> None:
        """Apply the store's response to the attempt, or mark the attempt to be sent again."""
        attempt = self._attempt
        assert attempt is not None
        if isinstance(answer, Unavailable | OutcomeUnknown):
            attempt.resend = True
            attempt.outcome_unknown |= isinstance(answer, OutcomeUnknown)
            return
        self._attempt = None
        if isinstance(answer, SessionExpired):
            self.session = NO_SESSION
            return
        self._wait_for = answer.rev
        if attempt.claims:
            self._judge_claim(attempt, answer)

    def freeze(self) -> Hashable:
        attempt = self._attempt
        return (
            self.session,
            self.broker_epoch,
            self.token,
            self.controller_epoch,
            self.former,
            None
            if attempt is None
            else (
                attempt.claims,
                attempt.controller_epoch,
                attempt.outcome_unknown,
                attempt.resend,
            ),
        )

    def _claim(self, image: ClusterImage, tag: int) -> StoreTransaction:
        epoch = image.controller_epoch + 1
        value = values.encode_claim(self.broker, self.broker_epoch, epoch)
        transaction = StoreTransaction(
            tag,
            (
                Guard(keys.CONTROLLER, ABSENT),
                Guard(keys.CONTROLLER_EPOCH, image.mod_rev(keys.CONTROLLER_EPOCH)),
                Guard(keys.broker_id(self.broker), self.broker_epoch, "create"),
            ),
            (
                Put(keys.CONTROLLER, value, self.session),
                Put(keys.CONTROLLER_EPOCH, str(epoch).encode()),
            ),
        )
        self._attempt = _Attempt(transaction, claims=True, controller_epoch=epoch)
        return transaction

    def _judge_claim(self, attempt: _Attempt, answer: TxnResult) -> None:
        if answer.ok:
            self.token, self.controller_epoch = answer.rev, attempt.controller_epoch
            return
        now = answer.now(keys.CONTROLLER)
        claimed = attempt.transaction.ops[0]
        assert isinstance(claimed, Put)
        if attempt.outcome_unknown and now is not None and now.value == claimed.value:
            # An earlier sending was applied: no other broker writes this broker epoch.
            self.token, self.controller_epoch = now.create_rev, attempt.controller_epoch
