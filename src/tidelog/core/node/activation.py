"""When this broker starts to serve and lead (is *active*), and when it stops.

A broker may be active while its registration is valid and its image shows it unfenced. It becomes
active once every replica has applied the image: a replica with an older registration might still
assume that it leads.

An active broker that can't renew its session is *detached*: the metadata store may be unreachable
for all brokers, and then none of them would serve. A detached broker continues to serve partitions
that its followers confirm (hosting/gate.py), leads no others, and proposes nothing. It is active
again with the next renewal, and stops when the store or the image shows that it was replaced.

Invariant: an active broker has a valid registration.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.membership.image_applier import ImageApplier
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.flushing import Flushing

LEASE_CHECK_MS = 500


class Activation:
    """Opens and closes the gate."""

    def __init__(
        self,
        turn: Turn,
        gate: Gate,
        replicas: Replicas,
        registration: Registration,
        applier: ImageApplier,
        flushing: Flushing,
    ) -> None:
        self._turn = turn
        self._gate = gate
        self._replicas = replicas
        self._registration = registration
        self._applier = applier
        self._flushing = flushing
        self._leases_checked_ms = 0

    def update(self) -> None:
        """Start or stop being active, after the registration, the image or replicas changed."""
        self.stop_if_unregistered()
        gate = self._gate
        if self._registration.may_act:
            self._applier.let_lead(True)
            if not gate.acting and self._applier.settled:
                if gate.detached:
                    self._turn.journal.note("session_resumed")
                gate.acting, gate.detached = True, False
                self._applier.begin_acting()
                self._flushing.begin_acting()
        elif gate.detached and self._turn.now_ms >= self._leases_checked_ms + LEASE_CHECK_MS:
            self._fail_waiters_without_lease()

    def stop_if_unregistered(self) -> None:
        """Stop if the registration or the image forbids this broker to lead. Called before the
        image is applied, so that changes which make this broker a leader are postponed."""
        if self._registration.may_act:
            return
        self._applier.let_lead(False)
        if self._gate.serving and not self._registration.may_detach:
            self.stop()
        elif self._gate.acting:
            self._detach()

    def _detach(self) -> None:
        self._gate.acting, self._gate.detached = False, True
        self._turn.journal.note("session_lapsed")
        self._fail_waiters_without_lease()

    def _fail_waiters_without_lease(self) -> None:
        """Fail writes that wait where followers are silent, so that clients retry on another
        broker. Fetches wait for a moment only."""
        self._leases_checked_ms = self._turn.now_ms
        for replica in self._replicas.hosted.values():
            waits = replica.commits or replica.flushes or replica.deletions
            if waits and not self._gate.holds_lease(replica):
                self._replicas.fail_waiters(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self) -> None:
        """Stop acknowledging. Fail the requests that wait, so that clients retry on another
        broker."""
        self._gate.acting = self._gate.detached = False
        self._turn.counters.fencings += 1
        for replica in self._replicas.hosted.values():
            self._replicas.fail_waiters(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)
