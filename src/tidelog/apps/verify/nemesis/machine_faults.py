"""Inject faults of machines and of etcd.

A fault of a machine affects all brokers of the machine that has the broker with the fault's role. A
fault of etcd affects all brokers: writes to any partition may pause.

Invariant: as in faults.py. When `inject` returns, all links are up, the processes of all machines
run, and all clocks are right.
"""

import time
from collections.abc import Callable

from tidelog.apps.verify.machines.machine_cluster import MachineCluster
from tidelog.apps.verify.nemesis.faults import Nemesis, View
from tidelog.apps.verify.nemesis.plan import MACHINE_KINDS, Fault, choose_majority

SKEWS_S = (600, -600)
"""Less than message.timestamp.after.max.ms of an hour: brokers must accept all records."""
ETCD_S = 20.0
"""How long to wait for a leader of etcd."""
HEALTH_S = 90.0
"""How long to wait until all replicas are in sync. After `restart-all`, etcd needs a leader, which
gives the sessions of the killed brokers their whole time again; all this on a busy computer."""
RESUMED_S = 0.5
ETCD_KINDS = ("etcd-leader", "etcd-quorum", "restart-all")


class MachineNemesis(Nemesis):
    """Injects also faults of machines."""

    health_s = HEALTH_S

    def __init__(
        self,
        cluster: MachineCluster,
        topic: str,
        ticks: Callable[[], int],
        hold: Callable[[float, str], None],
    ) -> None:
        super().__init__(cluster, topic, ticks, hold)
        self._machines = cluster
        self._led_etcd: int | None = None
        """The machine of etcd's leader before the current fault."""
        self._majority: list[int] = []
        """The machines of which an `etcd-quorum` kills the members of etcd."""
        network = cluster.network
        self._actions |= {
            "kill-machine": self._kill_machines,
            "cut": lambda *fault: self._cut(network.cut, *fault),
            "cut-out": lambda *fault: self._cut(network.cut_outgoing, *fault),
            "cut-in": lambda *fault: self._cut(network.cut_incoming, *fault),
            "pause-machine": self._pause_machines,
            "etcd-leader": self._kill_etcd_leader,
            "etcd-quorum": self._kill_etcd_quorum,
            "restart-all": self._kill_machines,
            "skew": self._skew,
        }

    def _targets(self, fault: Fault, view: View) -> list[int]:
        if fault.kind in ETCD_KINDS:
            self._majority = choose_majority(fault, self._machines.machines)
            return list(self._machines.ids)
        targets = super()._targets(fault, view)
        if fault.kind not in MACHINE_KINDS:
            return targets
        self._led_etcd = self._machines.etcd_leader()
        return self._machines.brokers_of(self._machines.machine_of(targets[0]))

    def _machines_of(self, targets: list[int]) -> list[int]:
        return sorted({self._machines.machine_of(broker) for broker in targets})

    # -- the actions of faults

    def _kill_machines(self, targets: list[int], seconds: float, what: str) -> str:
        machines = self._machines_of(targets)
        try:
            self._machines.kill_machines(machines)
            self._took_effect()
            self._hold(seconds, what)
        finally:
            for machine in machines:
                self._machines.start_machine(machine)
        return self._note(machines)

    def _cut(
        self, cut: Callable[[int], None], targets: list[int], seconds: float, what: str
    ) -> str:
        machines = self._machines_of(targets)
        try:
            for machine in machines:
                cut(machine)
            self._took_effect()
            self._hold(seconds, what)
        finally:
            for machine in machines:
                self._machines.network.mend(machine)
        return self._note(machines, self._restart_ended(targets, what))

    def _pause_machines(self, targets: list[int], seconds: float, what: str) -> str:
        machines = self._machines_of(targets)
        try:
            for machine in machines:
                self._machines.pause_machine(machine)
            self._took_effect()
            self._hold(seconds, what)
        finally:
            for machine in machines:
                self._machines.resume_machine(machine)
        return self._note(machines, self._restart_ended(targets, what))

    def _note(self, machines: list[int], what: str = "") -> str:
        """Add whether a lost machine had etcd's leader: then etcd gives all sessions their whole
        time again, and brokers must end those of the machine."""
        lost_leader = len(machines) == 1 and self._led_etcd in machines
        return "; ".join(filter(None, ["etcd's leader" if lost_leader else "", what]))

    def _restart_ended(self, targets: list[int], what: str) -> str:
        """Restart brokers that exited because they were fenced meanwhile."""
        self._hold(RESUMED_S, what)
        ended = [broker for broker in targets if not self._machines.is_running(broker)]
        with self._restarted_after(ended):
            return "it was fenced, and it exited" if ended else ""

    def _kill_etcd_leader(self, _targets: list[int], seconds: float, what: str) -> str:
        leader = self._etcd_leader()
        if leader is None:
            self.failures.append(f"etcd has no leader after {ETCD_S:g} s")
            return ""
        self._hold_without_etcd([leader], seconds, what)
        return f"etcd of machine {leader}"

    def _kill_etcd_quorum(self, _targets: list[int], seconds: float, what: str) -> str:
        self._hold_without_etcd(self._majority, seconds, what)
        return f"etcd of machines {' and '.join(map(str, self._majority))}"

    def _hold_without_etcd(self, machines: list[int], seconds: float, what: str) -> None:
        members = [self._machines.etcd[machine] for machine in machines]
        try:
            for member in members:
                member.kill()
            self._took_effect()
            self._hold(seconds, what)
        finally:
            for member in members:
                member.start()

    def _etcd_leader(self) -> int | None:
        until = time.monotonic() + ETCD_S
        while (leader := self._machines.etcd_leader()) is None and time.monotonic() < until:
            self._hold(0.1, "waiting for a leader of etcd")
        return leader

    def _skew(self, targets: list[int], seconds: float, what: str) -> str:
        offset_s = SKEWS_S[len(self.injected) % len(SKEWS_S)]
        machines = self._machines_of(targets)
        try:
            for machine in machines:
                self._machines.set_clock(machine, offset_s)
            self._hold(seconds, what)
        finally:
            for machine in machines:
                self._machines.set_clock(machine, 0)
        return f"{offset_s:+} s"
