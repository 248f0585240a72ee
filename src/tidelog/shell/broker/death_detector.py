"""Detect at once that another broker is dead (ADR 17).

The probe ends the sessions of brokers that are proved dead. There are two occasions to probe:

- A connection to a broker broke. Then several times, because a dying process closes its sockets
  shortly before or after its lock.
- A client requests metadata. Clients do so when a leader dies; if the response named the old
  leader, they would retry only after their back-off. So the response waits until proved deaths
  have taken effect: another leader is elected, or none. It waits for `PATIENCE_MS` at most; a
  death that can't be proved is left to the session time-out.
"""

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.controller.metadata.metadata_store import Revision, Unavailable
from tidelog.core.node.node import Node
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.store.proof_of_death import DeathProbe

PROBE_DELAYS_MS = (0, 5, 20, 60, 150, 400, 1000)
PATIENCE_MS = 500
"""The longest that a response waits for an election."""

Act: TypeAlias = Callable[[], None]
Unsettled: TypeAlias = Callable[[], bool]


class DeathDetector:
    """Probes for dead brokers, and delays responses that would name them."""

    def __init__(self, loop: EventLoop, node: Node, probe: DeathProbe) -> None:
        self._loop = loop
        self._node = node
        self._deaths = probe
        self._requests: list[tuple[Act, Unsettled]] = []
        self._held: list[tuple[Revision, int, Act, Unsettled]] = []

    def peer_lost(self) -> None:
        """Probe several times: the connection to a broker broke."""
        for delay_ms in PROBE_DELAYS_MS:
            self._loop.after(delay_ms, self._probe)

    def _probe(self) -> None:
        if self._node.halted is None:
            self._deaths.probe_deaths()

    def when_settled(self, act: Act, unsettled: Unsettled) -> None:
        """Call `act` when no leader is provably dead any more, or after `PATIENCE_MS`."""
        self._requests.append((act, unsettled))
        if len(self._requests) == 1:
            self._loop.at_end_of_turn(self._probe_once)

    def _probe_once(self) -> None:
        """Probe once for all requests of this turn."""
        requests, self._requests = self._requests, []

        def answered(revision: Revision | Unavailable) -> None:
            known = 0 if isinstance(revision, Unavailable) else revision
            deadline_ms = self._loop.clock.now_ms() + PATIENCE_MS
            held = [(known, deadline_ms, act, unsettled) for act, unsettled in requests]
            self._held += held
            self.image_advanced()
            if self._held:
                self._loop.after(PATIENCE_MS, self.image_advanced)

        self._deaths.probe_deaths(answered)

    def image_advanced(self) -> None:
        """Continue the requests that need not wait any more."""
        if not self._held:
            return
        held, self._held = self._held, []
        now_ms, revision = self._loop.clock.now_ms(), self._node.image.revision
        for one in held:
            known, deadline_ms, act, unsettled = one
            if now_ms < deadline_ms and (revision < known or unsettled()):
                self._held.append(one)
            else:
                act()
