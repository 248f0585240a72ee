"""Finding out at once that another broker is dead.

The store can prove it: the lock of a dead broker is free. Two things give reason to look.
A link to a broker broke: then a few times, for a dying process closes its sockets before
its lock or after it. And a client asks for metadata: that is what clients do in the very
moment a leader dies, and if they are told the old leader they come back only after their
back-off. So that answer waits until deaths that can be proved have taken effect: a new
leader, or none. Never for long: what can't be proved at once is left to the time-out.
"""

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.controller.metadata.metadata_store import Revision, Unavailable
from tidelog.core.node.node import Node
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.store.proof_of_death import DeathProbe

PROBE_DELAYS_MS = (0, 5, 20, 60, 150, 400, 1000)
PATIENCE_MS = 500
"""How long an answer waits for an election at most."""

Act: TypeAlias = Callable[[], None]
Unsettled: TypeAlias = Callable[[], bool]


class DeathDetector:
    """Looks whether brokers are dead, and holds back answers that would be wrong then."""

    def __init__(self, loop: EventLoop, node: Node, probe: DeathProbe) -> None:
        self._loop = loop
        self._node = node
        self._probe_of = probe
        self._asking: list[tuple[Act, Unsettled]] = []
        self._held: list[tuple[Revision, int, Act, Unsettled]] = []

    def peer_lost(self) -> None:
        """The connection to a broker is gone."""
        for delay_ms in PROBE_DELAYS_MS:
            self._loop.after(delay_ms, self._probe)

    def _probe(self) -> None:
        if self._node.halted is None:
            self._probe_of.probe_deaths()

    def when_settled(self, act: Act, unsettled: Unsettled) -> None:
        """Act once no leader is named that is provably dead."""
        self._asking.append((act, unsettled))
        if len(self._asking) == 1:
            self._loop.at_end_of_turn(self._ask)

    def _ask(self) -> None:
        """One look for all that ask in this turn."""
        asking, self._asking = self._asking, []

        def answered(revision: Revision | Unavailable) -> None:
            known = 0 if isinstance(revision, Unavailable) else revision
            deadline_ms = self._loop.clock.now_ms() + PATIENCE_MS
            held = [(known, deadline_ms, act, unsettled) for act, unsettled in asking]
            self._held += held
            self.image_advanced()
            if self._held:
                self._loop.after(PATIENCE_MS, self.image_advanced)

        self._probe_of.probe_deaths(answered)

    def image_advanced(self) -> None:
        """Let go what need not wait any more."""
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
