"""Inject the faults of a plan into a local cluster.

Invariant: there is one fault at a time. When `inject` or `make_while_down` returns, the processes
that it stopped run again and its fault switches are off, whatever happened in between.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.nemesis.damage import damage
from tidelog.apps.verify.nemesis.failover import Injected
from tidelog.apps.verify.nemesis.plan import (
    WAYS_OF,
    DamageChoice,
    Fault,
    choose,
    choose_damage,
    is_long,
)
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets
from tidelog.shell.supervisor.cluster import QUICK_ANSWER_S, ClusterFailed, LocalCluster
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed

HEALTH_S = 90.0
"""How long to wait after a fault until all replicas are in sync."""
REPAIR_S = 120.0
"""How long a broker may take to detect and repair a damaged replica and to be in sync."""
AHEAD = "only this broker had its newest records"
"""The note of a `kill-ahead` that killed a leader with unreplicated records."""
AHEAD_S = 4.0
"""How long followers are paused at most; their sessions must not time out."""
ACKS_S = 0.3
"""How long the clients have to receive the acknowledgements of a leader before its kill."""
DISK_RECOVERY_S = 3.0
EXIT_S = 0.5
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

    health_s = HEALTH_S

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
        self._effect = -1
        """When the current fault took effect; -1 if its action does not set it."""
        self._actions: dict[str, Callable[[list[int], float, str], str]] = {
            "kill": self._kill,
            "kill-ahead": self._kill_ahead,
            "kill-two": self._kill,
            "kill-all": self._kill,
            "pause": self._pause,
            "restart": self._restart,
            "isolate": self._isolate,
            "disk-full": self._fill_disk,
        }

    def inject(self, fault: Fault) -> None:
        """Inject one fault and wait until the cluster is healthy again."""
        self.restart_dead_brokers()
        view = self._view()
        targets = self._targets(fault, view)
        if fault.kind == "rolling":
            for broker in targets:
                self._inject_one(fault, [broker], self._restart)
        elif fault.kind in WAYS_OF:
            self._damage(fault, targets)
        else:
            self._inject_one(fault, targets, self._actions[fault.kind])

    def _targets(self, fault: Fault, view: View) -> list[int]:
        return choose(fault, view.leaders, view.controller, list(self._cluster.ids))

    def _damage(self, fault: Fault, targets: list[int]) -> None:
        """Damage one replica, unless another one may still be damaged or out of sync."""
        view = self._view()
        led = tuple(sorted(p for p, leader in view.leaders.items() if leader in targets))
        if not view.leaders or not self.await_health(
            self.health_s, "waiting for all replicas before damage"
        ):
            return
        chosen = choose_damage(fault, led, list(view.leaders))
        action = self._damage_stopped if fault.kind == "damage" else self._damage_running
        self._inject_one(fault, targets, partial(action, chosen))
        if not self._await(
            REPAIR_S, "waiting for the repair", lambda: self._is_repaired(targets[0])
        ):
            self.failures.append(
                f"broker {targets[0]}: damage of partition {chosen.partition} ({chosen.way}) is not"
                f" repaired after {REPAIR_S:g} s"
            )

    def _inject_one(
        self, fault: Fault, targets: list[int], action: Callable[[list[int], float, str], str]
    ) -> None:
        view = self._view()
        led = tuple(sorted(p for p, leader in view.leaders.items() if leader in targets))
        names = " and ".join(str(broker) for broker in targets)
        kind = fault.kind
        if is_long(fault):
            kind = f"{kind}, long"
        self._effect = -1
        begin = self._ticks()
        note = action(targets, fault.duration_s, f"{kind} broker {names}")
        end = self._ticks()
        healthy = self.await_health(self.health_s, f"after {kind} of broker {names}")
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
                self._effect,
            )
        )

    # -- the actions of faults

    def _kill(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._cluster.kill(broker)
        self._took_effect()
        with self._restarted_after(targets):
            self._hold(seconds, what)
        return ""

    def _kill_ahead(self, targets: list[int], seconds: float, what: str) -> str:
        """Kill a leader that has records which no follower received, and await another leader.

        The followers are paused before the kill and resumed after it.
        """
        [leader] = targets
        followers = [broker for broker in self._cluster.ids if broker != leader]
        seen: dict[int, int] = {}
        for broker in followers:
            self._cluster.pause(broker)
        try:
            ahead = self._await(AHEAD_S, what, lambda: self._is_ahead(leader, seen))
            self._hold(ACKS_S, what)
            self._cluster.kill(leader)
            self._took_effect()
        finally:
            for broker in followers:
                self._cluster.resume(broker)
        with self._restarted_after(targets):
            self._hold(seconds, what)
            self._await(self.health_s, what, lambda: leader not in self._view().leaders.values())
        return AHEAD if ahead else "the followers had all records"

    def _is_ahead(self, leader: int, seen: dict[int, int]) -> bool:
        """Return whether the leader appended records that its paused followers can't receive.

        A paused follower may still receive the response to its open fetch, and that response has
        the first records above the high watermark. Records appended after those exist only on the
        leader. `seen` keeps the log end offsets of the first call that found such records.
        """
        state = self._state_of(leader)
        return state is not None and any(
            replica["log_end_offset"]
            > seen.setdefault(replica["partition"], replica["log_end_offset"])
            for replica in state["partitions"]
            if replica["role"] == "leader" and replica["log_end_offset"] > replica["high_watermark"]
        )

    def _restart(self, targets: list[int], seconds: float, what: str) -> str:
        with self._restarted_after(targets):
            for broker in targets:
                self._stop(broker)
            self._hold(min(seconds, STOPPED_S_MAX), what)
        return ""

    def _damage_stopped(
        self, chosen: DamageChoice, targets: list[int], seconds: float, what: str
    ) -> str:
        with self._restarted_after(targets):
            how = self._stop_or_kill(chosen, targets)
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
        with self._restarted_after(targets):
            how = self._stop_or_kill(chosen, targets)
        return f"running, then {how}; partition {chosen.partition}: {chosen.way}"

    def _stop_or_kill(self, chosen: DamageChoice, targets: list[int]) -> str:
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
        self._took_effect()
        try:
            self._hold(seconds, what)
        finally:
            for broker in targets:
                self._cluster.resume(broker)
        self._hold(0.1, what)
        ended = [broker for broker in targets if not self._cluster.is_running(broker)]
        with self._restarted_after(ended):
            return "its peers fenced it while it was paused, and it exited" if ended else ""

    def _isolate(self, targets: list[int], seconds: float, what: str) -> str:
        for broker in targets:
            self._cluster.isolate(broker)
        self._took_effect()
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
            with self._restarted_after(ended):
                return "the broker exited and was restarted"
        if self.await_health(DISK_RECOVERY_S, what):
            return "recovered without a restart"
        with self._restarted_after(targets):
            for broker in targets:
                self._stop(broker)
        return "recovered only after a restart"

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
            self.failures.append(f"broker {broker} failed while it stopped: {why}")

    def _switch(self, broker: int, faults: dict[str, bool]) -> None:
        """Set fault switches; a broker that can't write may exit before it responds."""
        try:
            self._cluster.set_faults(broker, faults)
        except (ProbeFailed, ClusterFailed):
            self._hold(EXIT_S, "")
            if self._cluster.is_running(broker):
                raise

    @contextmanager
    def _restarted_after(self, brokers: list[int]) -> Iterator[None]:
        try:
            yield
        finally:
            for broker in brokers:
                if not self._cluster.is_running(broker):
                    self._cluster.start_broker(broker, wait=False)

    def _took_effect(self) -> None:
        """Note that all targets are affected: acknowledgements from now on show recovery."""
        self._effect = self._ticks()

    # -- the state of the cluster

    def restart_dead_brokers(self) -> None:
        """Restart brokers that exited by themselves, and record each as a failure."""
        for broker in self._cluster.ids:
            if not self._cluster.is_running(broker):
                why = self._cluster.how_it_ended(broker)
                self.failures.append(f"broker {broker} exited unexpectedly: {why}")
                self._cluster.start_broker(broker, wait=False)

    def _view(self) -> View:
        """Return the view of the controller, or of another broker if it does not respond."""
        seen = next(filter(None, map(self._metadata_of, self._cluster.ids)), None)
        if seen is None:
            return View({}, -1)
        if seen.controller_id in self._cluster.ids:
            seen = self._metadata_of(seen.controller_id) or seen
        partitions = seen.topics.get(self._topic, {})
        return View({p: state.leader for p, state in partitions.items()}, seen.controller_id)

    def _metadata_of(self, broker: int) -> MetadataView | None:
        """Return a broker's metadata of the topic; None if it does not respond."""
        try:
            return self._cluster.metadata(broker, [self._topic], QUICK_ANSWER_S)
        except ProbeFailed:
            return None

    def await_health(self, seconds: float, what: str) -> bool:
        """Wait until all replicas are in sync and receive new records.

        Return whether that happened in time. The second condition matters after a short cut: the
        followers are still in the ISR, but TCP may wait for seconds before it sends again.
        """
        ends: dict[tuple[int, int], int] = {}
        return self._await(seconds, what, lambda: self._is_healthy() and self._has_committed(ends))

    def _has_committed(self, ends: dict[tuple[int, int], int]) -> bool:
        """Return whether the leaders have committed all records of the first call.

        `ends` keeps the log end offsets by partition and leader.
        """
        committed = True
        for broker in self._cluster.ids:
            state = self._state_of(broker)
            if state is None:
                return False
            for replica in state["partitions"]:
                if replica["role"] == "leader":
                    place = replica["partition"], broker
                    end = ends.setdefault(place, replica["log_end_offset"])
                    committed &= replica["high_watermark"] >= end
        return committed

    def _await(self, seconds: float, what: str, holds: Callable[[], bool]) -> bool:
        until = self._ticks() + int(seconds * 10_000)
        while not holds():
            if self._ticks() >= until:
                return False
            self._hold(POLL_S, what)
        return True

    def _is_repaired(self, broker: int) -> bool:
        """Return whether damage is repaired.

        The broker must have checked its whole log since startup, without damage, and all replicas
        must be in sync. Check `acting` first: before that, the view may be of the old process.
        """
        state = self._state_of(broker)
        if state is None or not state["acting"] or not state["scrub"]["passes"]:
            return False
        damaged = any(replica["damage"] for replica in state["partitions"])
        return not damaged and self._is_healthy()

    def _is_healthy(self) -> bool:
        """Return whether all brokers are part of the cluster and all replicas are in the ISR.

        Metadata is not enough. When all brokers were restarted, each answers with what the store
        has: the registrations and leaders of the processes that were killed. So each leader must
        confirm that it leads.
        """
        leaders = set()
        for broker in self._cluster.ids:
            seen = self._metadata_of(broker)
            if seen is None or len(seen.brokers) < len(self._cluster.ids):
                return False
            partitions = seen.topics.get(self._topic, {})
            if not partitions:
                return False
            for number, (leader, replicas, isr) in partitions.items():
                if leader < 0 or len(isr) < len(replicas):
                    return False
                leaders.add((number, leader))
        return leaders == self._confirmed_leaders()

    def _confirmed_leaders(self) -> set[tuple[int, int]] | None:
        """Return (partition, leader) as the leaders report them.

        None if a broker does not respond or is not part of the cluster.
        """
        found = set()
        for broker in self._cluster.ids:
            state = self._state_of(broker)
            if state is None or not state["acting"]:
                return None
            for replica in state["partitions"]:
                if replica["role"] == "leader":
                    found.add((replica["partition"], broker))
        return found

    def _state_of(self, broker: int) -> dict[str, Any] | None:
        """Return the broker's state of the topic; None if it does not respond."""
        try:
            return self._cluster.describe_state(broker, self._topic, QUICK_ANSWER_S)
        except ProbeFailed:
            return None


# -- the first fault of a run: a broker is killed before any topic or group exists -----------------


FENCED_S = 120.0
FENCED_POLL_S = 0.05


def make_while_down(
    local: LocalCluster,
    cluster: Cluster,
    topic: str,
    create_topic: Callable[[], None],
    findings: Findings,
) -> None:
    """Create the topic and commit the cluster's first offset while a broker is down."""
    victim = max(local.ids)
    local.kill(victim)
    try:
        _await_fenced(cluster, victim)
        create_topic()
        commit_offsets(cluster, topic, {TopicPartition(topic, 0): Committed(0)})
    except ClientError as error:
        findings.add("not created", f"with broker {victim} down: {error}")
    finally:
        local.start_broker(victim)
    if topic not in cluster.refresh().topics:
        create_topic()


def _await_fenced(cluster: Cluster, broker: int) -> None:
    """Wait until the broker is fenced. Raises ClientError if that takes too long."""
    until = time.monotonic() + FENCED_S
    while True:
        known = registered_brokers(cluster).get(broker)
        if known is None:
            raise ClientError(f"broker {broker} is no longer registered")
        if known.fenced:
            return
        if time.monotonic() > until:
            raise ClientError(f"broker {broker} is not fenced after {FENCED_S:g} s")
        time.sleep(FENCED_POLL_S)
