"""This broker's membership in the cluster: a store session, a registration, heartbeats.

    open a session -> register (brokers/ids/<id>, the revision is the broker epoch)
    -> heartbeat until the controller unfences -> active

A session counts only until its deadline minus a margin, whatever the store says: after that another
broker may lead the partitions that this one leads. Then this broker fences itself: it acknowledges
and proposes nothing. A later renewal ends that; after a lost session the broker registers again,
under a new broker epoch. A broker that an administrator unregistered while it ran stays out until
its process is restarted, as in Kafka.

While this broker may have lost logs that the cluster does not know of, it asks to stay fenced.

Invariant: an active broker's image shows this incarnation of it unfenced.
"""

from tidelog.core.controller import events as on
from tidelog.core.controller.broker_liveness import registration_transaction
from tidelog.core.controller.effects import HeartbeatAnswer, StoreTransaction
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import FeatureRange
from tidelog.core.controller.metadata.metadata_store import (
    OutcomeUnknown,
    Revision,
    SessionExpired,
    SessionId,
    TxnAnswer,
    TxnResult,
    Unavailable,
)
from tidelog.core.controller.metadata.registrations import Endpoint, decode_broker, endpoint_name
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.effects import CloseSession, OpenSession
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.membership.image_applier import ImageApplier
from tidelog.core.node.membership.log_reporter import LogReporter
from tidelog.core.node.turn import Turn
from tidelog.core.types import CLIENT_LISTENER, INTERNAL_LISTENER, BrokerEpoch, BrokerId

REGISTRATION_TAG = -1
"""The tag of the registration; tags of the controller are not negative."""
RETRY_MS = 500
STOP_RETRY_MS = 50
"""How often a broker that shuts down sends a heartbeat: its leaders move within moments."""


class Registration:
    """The session, registration and heartbeats of this broker."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        controller: ControllerHost,
        reporter: LogReporter,
        applier: ImageApplier,
        incarnation: str,
        previous_epoch: BrokerEpoch,
        supported: tuple[FeatureRange, ...],
    ) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        self.may_stop = False
        """Whether the controller has agreed that this broker shuts down."""
        self._config = config
        self._turn = turn
        self._image = image
        self._controller = controller
        self._reporter = reporter
        self._incarnation = incarnation
        self._previous_epoch = previous_epoch
        self._supported = supported
        self._applier = applier
        self._session: SessionId | None = None
        self._deadline_ms = 0
        self._margin_ms = config.fencing_margin_ms
        self._registering = False
        self._retry_at_ms: int | None = None
        self._heartbeat_at_ms: int | None = None
        self._heartbeat_out = False
        self._wanted_fence = False
        """Whether the last heartbeat asked to stay fenced."""
        self._reported_revision: Revision = 0
        """The applied revision in the last heartbeat."""
        self._awaited_revision: Revision = 0
        """The revision that a broker waits for before it may stop."""
        self._drained: frozenset[BrokerId] = frozenset()
        """Brokers that shut down and were in no ISR when the image was last checked."""
        self._want_shut_down = False
        self._candidate = False
        self._caught_up = False
        self._admitted = False
        """Whether the image has shown this process as admitted."""
        self._unregistered = False

    # -- the session -----------------------------------------------------------------------

    def start(self) -> None:
        """Open a store session."""
        self._turn.emit(OpenSession(self._config.broker_session_timeout_ms))

    def session_opened(self, session: SessionId, deadline_ms: int) -> None:
        """Register with the new session."""
        self._session = session
        self._deadline_ms = deadline_ms
        self._retry_at_ms = None
        self._register()

    def session_renewed(self, deadline_ms: int) -> None:
        """Extend the session."""
        if self._session is not None:
            self._deadline_ms = max(self._deadline_ms, deadline_ms)
            self._become_candidate()

    def session_lost(self) -> None:
        """Leave the cluster, and open another session later."""
        if self._unregistered:
            return
        self._remember_epoch()
        if self._session is not None:
            self._turn.journal.note("session_lost")
        self._leave()
        self._retry_at_ms = self._turn.now_ms + RETRY_MS

    def _leave(self) -> None:
        """Leave the cluster: there is no session."""
        self._session = None
        self.broker_epoch = None
        self._registering = False
        self._heartbeat_at_ms = None
        self.withdraw_candidacy()

    def _remember_epoch(self) -> None:
        """Remember the epoch if it was admitted: the next registration names the last admitted
        epoch whose logs are complete, and this process has kept its logs since then."""
        known = self._image.brokers.get(self._config.broker_id)
        epoch = self.broker_epoch
        if epoch is not None and known is not None and known.admitted_epoch == epoch:
            self._previous_epoch = epoch

    @property
    def deadline_ms(self) -> int | None:
        """When the session ends unless it is renewed; None without a session."""
        return None if self._session is None else self._deadline_ms

    @property
    def session_valid(self) -> bool:
        """Whether no other broker can have replaced this one yet."""
        return self._session is not None and self._turn.now_ms < self._deadline_ms - self._margin_ms

    @property
    def lapsed(self) -> bool:
        """Whether the session of a candidate has come too close to its end."""
        return self._candidate and (
            self._session is None or self._turn.now_ms >= self._deadline_ms - self._margin_ms
        )

    @property
    def may_act(self) -> bool:
        """Whether this broker may lead the partitions that the image assigns to it."""
        return (
            self.broker_epoch is not None
            and self.session_valid
            and self._image.may_lead(self._config.broker_id, self.broker_epoch)
        )

    @property
    def may_detach(self) -> bool:
        """Whether only the renewal of the session failed: the store may be unreachable for all
        brokers, and neither the store nor the image has shown that this broker was replaced."""
        return (
            self.broker_epoch is not None
            and self._session is not None
            and not self.session_valid
            and self._image.may_lead(self._config.broker_id, self.broker_epoch)
        )

    # -- the registration ------------------------------------------------------------------

    def _register(self) -> None:
        if self._session is None or self._registering or self.broker_epoch is not None:
            return
        self._registering = True
        config = self._config
        guards, ops = registration_transaction(
            config.broker_id,
            self._session,
            self._incarnation,
            _endpoints(config),
            config.rack,
            self._previous_epoch,
            config.min_insync_replicas,
            self._supported,
        )
        self._turn.emit(StoreTransaction(REGISTRATION_TAG, guards, ops))

    def transaction_answered(self, answer: TxnAnswer) -> None:
        """Apply the outcome of the registration."""
        if not self._registering:
            return
        self._registering = False
        if isinstance(answer, SessionExpired):
            self.session_lost()
        elif isinstance(answer, Unavailable | OutcomeUnknown):
            self._retry_at_ms = self._turn.now_ms + RETRY_MS
        else:
            self._transaction_result(answer)

    def _transaction_result(self, answer: TxnResult) -> None:
        """Use the result: the key was written now, or by an earlier attempt of this process; or it
        belongs to an older incarnation, whose session has to end first."""
        if answer.ok:
            self._registered(answer.rev)
            return
        now = answer.now(keys.broker_id(self._config.broker_id))
        if now is not None and now.session == self._session:
            found = decode_broker(self._config.broker_id, now.create_rev, now.value)
            if found.incarnation == self._incarnation:
                self._registered(found.epoch)
                return
        self._retry_at_ms = self._turn.now_ms + RETRY_MS

    def _registered(self, epoch: BrokerEpoch) -> None:
        self.broker_epoch = epoch
        self._turn.journal.note("registered", epoch)
        self._retry_at_ms = None
        self._caught_up = False
        self._become_candidate()
        self.heartbeat_soon()

    def _become_candidate(self) -> None:
        """Be a candidate for the controller role while the session is valid."""
        if self.broker_epoch is not None and self.session_valid and not self._candidate:
            assert self._session is not None, "a valid session is one"
            self._candidate = True
            self._controller.step(on.SessionOpened(self._session, self.broker_epoch))

    def withdraw_candidacy(self) -> None:
        """Leave the controller role to other brokers: this one may be replaced already."""
        if self._candidate:
            self._candidate = False
            self._controller.step(on.SessionLost())

    # -- heartbeats ------------------------------------------------------------------------

    def heartbeat_soon(self) -> None:
        """Send a heartbeat at once: the controller waits for it, or is a new controller."""
        self._heartbeat_at_ms = self._turn.now_ms

    def image_advanced(self, *, controller: bool) -> None:
        """Check the registration in the new image; `controller`: there may be a new controller."""
        if self.broker_epoch is None:
            return
        known = self._image.brokers.get(self._config.broker_id)
        if self._image.revision >= self.broker_epoch and (
            known is None or known.epoch != self.broker_epoch
        ):
            self._registration_lost(unregistered=known is None and self._admitted)
            return
        self._admitted |= known is not None and known.admitted_epoch == self.broker_epoch
        if controller:
            self._heartbeat_out = False
            self.heartbeat_soon()
        if not self._caught_up and self._applier.applied_revision >= self.broker_epoch:
            self._caught_up = True
            self.heartbeat_soon()
        if self._wanted_fence and not self._reporter.must_stay_fenced:
            self.heartbeat_soon()
        self._note_drained()
        if self._is_awaited:
            self.heartbeat_soon()

    def _note_drained(self) -> None:
        """Note the revision at which another broker left its last ISR: the controller lets that
        broker stop when all others have applied it."""
        image = self._image
        drained = frozenset(broker for broker in image.brokers if image.drained(broker))
        if drained - self._drained:
            self._awaited_revision = image.revision
        self._drained = drained

    @property
    def _is_awaited(self) -> bool:
        """Whether a stopping broker waits for a revision that this broker has not reported yet."""
        return self._reported_revision < self._awaited_revision <= self._applier.applied_revision

    def _registration_lost(self, *, unregistered: bool) -> None:
        """Close the session: the registration was deleted although the session is valid. An
        administrator unregistered this broker, or it was considered dead."""
        self._turn.emit(CloseSession())
        if unregistered:
            self._turn.journal.note("unregistered")
            self._leave()
            self._unregistered = True
        else:
            self.session_lost()

    def shut_down(self) -> None:
        """Ask the controller to move the leaders of this broker to others."""
        self._want_shut_down = True
        self.heartbeat_soon()
        self.tick()

    def _heartbeat(self) -> None:
        self._heartbeat_at_ms = self._turn.now_ms + self._config.broker_heartbeat_interval_ms
        if self.broker_epoch is None or self._heartbeat_out:
            return
        self._wanted_fence = self._reporter.must_stay_fenced
        self._reported_revision = self._applier.applied_revision
        request = on.HeartbeatReceived(
            0,
            self._config.broker_id,
            self.broker_epoch,
            self._applier.applied_revision,
            self._turn.now_ms,
            want_fence=self._wanted_fence,
            want_shut_down=self._want_shut_down,
        )
        self._heartbeat_out = True
        sent = self._controller.call(
            request,
            self._config.broker_session_timeout_ms // 2,
            self._heartbeat_answered,
            self._heartbeat_failed,
        )
        if not sent:
            self._heartbeat_failed()

    def _heartbeat_answered(self, answer: HeartbeatAnswer) -> None:
        self._heartbeat_out = False
        if answer.error is not ErrorCode.NONE:
            self._heartbeat_failed()
        elif answer.should_shut_down and self._want_shut_down:
            self.may_stop = True
        elif self._want_shut_down:
            self._heartbeat_at_ms = self._turn.now_ms + STOP_RETRY_MS
        elif self._caught_up and not answer.caught_up:
            # This broker caught up while the heartbeat was in flight: the controller waits for it.
            self.heartbeat_soon()
        elif self._is_awaited or (self._wanted_fence and not self._reporter.must_stay_fenced):
            self.heartbeat_soon()

    def _heartbeat_failed(self) -> None:
        self._heartbeat_out = False
        self._heartbeat_at_ms = self._turn.now_ms + RETRY_MS

    # -- the clock -------------------------------------------------------------------------

    def tick(self) -> None:
        """Open the session, withdraw the candidacy or send the heartbeat, if it is time."""
        now = self._turn.now_ms
        if self._retry_at_ms is not None and now >= self._retry_at_ms:
            self._retry_at_ms = None
            if self._session is None:
                self.start()
            else:
                self._register()
        if self._heartbeat_at_ms is not None and now >= self._heartbeat_at_ms:
            self._heartbeat()

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        soonest = self._retry_at_ms
        beat_ms = self._heartbeat_at_ms
        if beat_ms is not None and (soonest is None or beat_ms < soonest):
            soonest = beat_ms
        if self.session_valid:
            ends_ms = self._deadline_ms - self._margin_ms
            if soonest is None or ends_ms < soonest:
                soonest = ends_ms
        return soonest


def _endpoints(config: NodeConfig) -> tuple[Endpoint, ...]:
    """The first client listener, the listener for brokers if there is one, and all client
    listeners by name. Older releases know only the first two."""
    endpoints = [Endpoint(CLIENT_LISTENER, config.host, config.port)]
    if config.internal_port != 0:
        endpoints.append(Endpoint(INTERNAL_LISTENER, config.internal_host, config.internal_port))
    for name, host, port in config.listeners:
        endpoints.append(Endpoint(endpoint_name(name), host, port))
    return tuple(endpoints)
