"""When a broker begins to act as leader, and when it ceases to.

It may lead while its registration holds; it acts once every replica here has heard what was
said of it before. A replica that still holds an older word might think that it leads: until it
has the newer one, nobody is served.

Always true: a broker that acts may lead.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.membership.metadata import Metadata
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.replicas import Replicas
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.flushing import Flushing


class Acting:
    """Opens and closes the gate."""

    def __init__(
        self,
        turn: Turn,
        gate: Gate,
        replicas: Replicas,
        registration: Registration,
        metadata: Metadata,
        flushing: Flushing,
    ) -> None:
        self._turn = turn
        self._gate = gate
        self._replicas = replicas
        self._registration = registration
        self._metadata = metadata
        self._flushing = flushing

    def hold_back(self) -> None:
        """Before the image is followed: words about own leadership wait, if this broker may not
        lead by it."""
        if not self._registration.may_act:
            self._metadata.let_lead(False)
            if self._gate.acting:
                self.cease()

    def reconsider(self) -> None:
        """The registration, its session or the replicas are others."""
        self.hold_back()
        if self._registration.may_act:
            self._metadata.let_lead(True)
            if not self._gate.acting and self._metadata.settled:
                self._gate.acting = True
                self._metadata.begin_acting()
                self._flushing.begin_acting()

    def cease(self) -> None:
        """Promise nothing more; whoever waits must ask elsewhere."""
        self._gate.acting = False
        self._turn.counters.fencings += 1
        for replica in self._replicas.hosted.values():
            self._replicas.fail_waiters(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)
