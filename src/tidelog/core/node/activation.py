"""When this broker starts to serve and lead (is *active*), and when it stops.

A broker may be active while its registration is valid and its image shows it unfenced. It becomes
active once every replica has applied the image: a replica with an older registration might still
assume that it leads.

Invariant: an active broker has a valid registration.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.membership.image_applier import ImageApplier
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.flushing import Flushing


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

    def update(self) -> None:
        """Start or stop being active, after the registration, the image or replicas changed."""
        self.stop_if_unregistered()
        if self._registration.may_act:
            self._applier.let_lead(True)
            if not self._gate.acting and self._applier.settled:
                self._gate.acting = True
                self._applier.begin_acting()
                self._flushing.begin_acting()

    def stop_if_unregistered(self) -> None:
        """Stop if the registration or the image forbids this broker to lead. Called before the
        image is applied, so that changes which make this broker a leader are postponed."""
        if not self._registration.may_act:
            self._applier.let_lead(False)
            if self._gate.acting:
                self.stop()

    def stop(self) -> None:
        """Stop acknowledging. Fail the requests that wait, so that clients retry on another
        broker."""
        self._gate.acting = False
        self._turn.counters.fencings += 1
        for replica in self._replicas.hosted.values():
            self._replicas.fail_waiters(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)
