"""Inject the faults of a plan into a local cluster.

Invariant: there is one fault at a time. When `inject` returns, the processes that it stopped run
again and its fault switches are off, whatever happened in between.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tidelog.apps.verify.nemesis.damage import damage
from tidelog.apps.verify.nemesis.failover import Injected
from tidelog.apps.verify.nemesis.plan import (
    SESSION_S,
    WAYS_OF,
    DamageChoice,
    Fault,
    choose,
    choose_damage,
)
from tidelog.core.types import TopicPartition
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed

HEALTH_S = 30.0
"""How long to wait after a fault until all replicas are in sync."""
MENDED_S = 120.0
"""How long a broker may take to detect and repair a damaged replica and to be in sync."""
DISK_RECOVERY_S = 3.0
GOING_S = 0.5
STOPPED_S_MAX = 0.5
POLL_S = 0.1


class View(NamedTuple):
    """The current leaders and controller."""

    leaders: dict[int, int]
    """Leader by partition."""
    controller: int


class Nemesis:
    """Injects faults into `cluster` and waits until the partitions of `topic` recover.

    `ticks` is the run's clock; `hold` waits a number of seconds and reports a status text.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        topic: str,
        ticks: Callable[[], int],
        hold: Callable[[float, str], None],
    ) -> None:
        self.injected: list[Injected] = []
        self.failures: list[str] = []
        """Brokers that exited unexpectedly, did not stop on request or did not repair damage."""
        self._cluster = cluster
        self._topic = topic
        self._ticks = ticks
        self._hold = hold
        self._acts = {
            "kill": self._kill,
            "kill-two": self._kill,
            "kill-all": self._kill,
            "pause": self._pause,
            "restart": self._restart,
            "isolate": self._isolate,
            "disk-full": self._fill_disk,
        }

    def inject(self, fault: Fault) -> None:
        """Inject one fault and wait until the cluster is healthy again."""
        self.look_after_the_dead()
        view = self._view()
        targets = choose(fault, view.leaders, view.controller, list(self._cluster.ids))
        if fault.kind == "rolling":
            for broker in targets:
                self._one(fault, [broker], self._restart)
        elif fault.kind in WAYS_OF:
            self._damage(fault, targets)
        else:
            self._one(fault, targets, self._acts[fault.kind])

    def _damage(self, fault: Fault, targets: list[int]) -> None:
        """Damage one replica, unless another one may still be damaged or out of sync."""
        view = self._view()
        led = tuple(sorted(p for p, leader in view.leaders.items() if leader in targets))
        if not view.leaders or not self.await_health(HEALTH_S, "all in sync before damage"):
            return
        chosen = choose_damage(fault, led, list(view.leaders))
        act = self._damage_stopped if fault.kind == "damage" else self._damage_running
        self._one(fault, targets, partial(act, chosen))
        if not self._await(MENDED_S, "damage is mended", lambda: self._is_mended(targets[0])):
            self.failures.append(
                f"broker {targets[0]}: partition {chosen.partition} is not mended {MENDED_S:g} s"
                f" after {chosen.way}"
            )

    def _one(
        self, fault: Fault, targets: list[int], act: Callable[[list[int], float, str], str]
    ) -> None:
        view = self._view()
        led = tuple(sorted(p for p, leader in view.leaders.items() if leader in targets))
        names = " and ".join(str(broker) for broker in targets)
        kind = fault.kind
        if kind in ("pause", "isolate") and fault.duration_s > SESSION_S:
            kind = f"{kind}, long"
        begin = self._ticks()
        note = act(targets, fault.duration_s, f"{kind} broker {names}")
        end = self._ticks()
        healthy = self.await_health(HEALTH_S, f"after {kind} of broker {names}")
        self.injected.append(
            Injected(
                kind,
                fault.role,
                tuple(targets),
                begin,
                end,
                self._ticks() if healthy else None,
                led,
                note,
                view.controller in targets,
            )
        )

    # -- the actions of faults

    def _kill(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._cluster.kill(broker)
        with self._started_again(targets):
            self._hold(seconds, what)
        return ""

    def _restart(self, targets: list[int], seconds: float, what: str) -> str:
        with self._started_again(targets):
            for broker in targets:
                self._stop(broker)
            self._hold(min(seconds, STOPPED_S_MAX), what)
        return ""

    def _damage_stopped(
        self, chosen: DamageChoice, targets: list[int], seconds: float, what: str
    ) -> str:
        with self._started_again(targets):
            how = self._end(chosen, targets)
            self._damage_files(chosen, targets)
            self._hold(seconds, f"{what}: {chosen.way}")
        return f"{how}; partition {chosen.partition}: {chosen.way}"

    def _damage_running(
        self, chosen: DamageChoice, targets: list[int], seconds: float, what: str
    ) -> str:
        """Damage files of a running broker, then restart it.

        The restart makes it notice a deleted file, which it still has open.
        """
        self._damage_files(chosen, targets)
        self._hold(seconds, f"{what}: {chosen.way}")
        with self._started_again(targets):
            how = self._end(chosen, targets)
        return f"running, then {how}; partition {chosen.partition}: {chosen.way}"

    def _end(self, chosen: DamageChoice, targets: list[int]) -> str:
        for broker in targets:
            (self._stop if chosen.clean else self._cluster.kill)(broker)
        return "clean stop" if chosen.clean else "kill -9"

    def _damage_files(self, chosen: DamageChoice, targets: list[int]) -> None:
        for broker in targets:
            place = TopicPartition(self._topic, chosen.partition)
            damage(self._cluster.log_dir(broker), place, chosen.way)

    def _pause(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._cluster.pause(broker)
        try:
            self._hold(seconds, what)
        finally:
            for broker in targets:
                self._cluster.resume(broker)
        self._hold(0.1, what)
        ended = [broker for broker in targets if not self._cluster.is_running(broker)]
        with self._started_again(ended):
            return "its peers ended it while it hung" if ended else ""

    def _isolate(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._cluster.isolate(broker)
        try:
            self._hold(seconds, what)
        finally:
            for broker in targets:
                self._cluster.heal(broker)
        return ""

    def _fill_disk(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._switch(broker, {"disk_full": True})
        self._hold(seconds, what)
        for broker in targets:
            if self._cluster.is_running(broker):
                self._switch(broker, {"disk_full": False})
        ended = [broker for broker in targets if not self._cluster.is_running(broker)]
        if ended:
            with self._started_again(ended):
                return "it ended by itself, and was started again"
        if self.await_health(DISK_RECOVERY_S, what):
            return "went on by itself"
        with self._started_again(targets):
            for broker in targets:
                self._stop(broker)
        return "needed a restart"

    def _stop(self, broker: int) -> None:
        """Stop a broker cleanly; if it does not stop, record a failure and kill it."""
        try:
            code = self._cluster.stop(broker)
        except ClusterFailed as error:
            self.failures.append(str(error))
            self._cluster.kill(broker)
            return
        if code:
            why = self._cluster.how_it_ended(broker)
            self.failures.append(f"broker {broker}, told to stop: {why}")

    def _switch(self, broker: int, faults: dict[str, bool]) -> None:
        """Set fault switches; a broker that can't write may exit before it responds."""
        try:
            self._cluster.set_faults(broker, faults)
        except (ProbeFailed, ClusterFailed):
            self._hold(GOING_S, "")
            if self._cluster.is_running(broker):
                raise

    @contextmanager
    def _started_again(self, brokers: list[int]) -> Iterator[None]:
        try:
            yield
        finally:
            for broker in brokers:
                if not self._cluster.is_running(broker):
                    self._cluster.start_broker(broker, wait=False)

    # -- the state of the cluster

    def look_after_the_dead(self) -> None:
        """Restart brokers that exited by themselves, and record each as a failure."""
        for broker in self._cluster.ids:
            if not self._cluster.is_running(broker):
                why = self._cluster.how_it_ended(broker)
                self.failures.append(f"broker {broker} ended by itself: {why}")
                self._cluster.start_broker(broker, wait=False)

    def _view(self) -> View:
        """Return the view of the controller, or of another broker if it does not respond."""
        seen = next(filter(None, map(self._ask, self._cluster.ids)), None)
        if seen is None:
            return View({}, -1)
        if seen.controller_id in self._cluster.ids:
            seen = self._ask(seen.controller_id) or seen
        partitions = seen.topics.get(self._topic, {})
        return View({p: state.leader for p, state in partitions.items()}, seen.controller_id)

    def _ask(self, broker: int) -> MetadataView | None:
        """Return a broker's metadata of the topic; None if it does not respond."""
        try:
            return self._cluster.metadata(broker, [self._topic])
        except ProbeFailed:
            return None

    def await_health(self, seconds: float, what: str) -> bool:
        """Wait until every broker reports all partitions with a leader and all replicas in sync.

        Return whether that happened in time.
        """
        return self._await(seconds, what, self._is_healthy)

    def _await(self, seconds: float, what: str, holds: Callable[[], bool]) -> bool:
        until = self._ticks() + int(seconds * 10_000)
        while not holds():
            if self._ticks() >= until:
                return False
            self._hold(POLL_S, what)
        return True

    def _is_mended(self, broker: int) -> bool:
        """Return whether damage is repaired.

        The broker must have checked its whole log since startup, without damage, and all replicas
        must be in sync. Check `acting` first: before that, the view may be of the old process.
        """
        try:
            state = self._cluster.describe_state(broker, self._topic)
        except ProbeFailed:
            return False
        if not state["acting"] or not state["scrub"]["passes"]:
            return False
        damaged = any(replica["damage"] for replica in state["partitions"])
        return not damaged and self._is_healthy()

    def _is_healthy(self) -> bool:
        for broker in self._cluster.ids:
            seen = self._ask(broker)
            if seen is None or len(seen.brokers) < len(self._cluster.ids):
                return False
            partitions = seen.topics.get(self._topic, {})
            if not partitions:
                return False
            for leader, replicas, isr in partitions.values():
                if leader < 0 or len(isr) < len(replicas):
                    return False
        return True
