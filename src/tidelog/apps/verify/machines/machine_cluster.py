"""A cluster on several machines, each a network namespace with a member of etcd and brokers.

Brokers are assigned to machines in turn, and the machine is their rack. So the replicas of a
partition are on different machines, also with several brokers on each.

Invariant: after `close`, no process, namespace or link of the cluster is left.
"""

import os
import signal
from collections.abc import Mapping, Sequence

from tidelog.apps.verify.machines import etcd_member, machine_clock
from tidelog.apps.verify.machines.etcd_member import EtcdMember
from tidelog.apps.verify.machines.namespaces import Network
from tidelog.shell.supervisor import data_folder
from tidelog.shell.supervisor.cluster import LocalCluster

PORT = 9092
INTERNAL_PORT = 9192
READY_S = 120.0
SECRET = "cluster-secret"
"""The file with the cluster's secret, in the folder of all machines."""


class MachineCluster(LocalCluster):
    """Brokers on machines 1 to N."""

    def __init__(self, machines: int, brokers_per_machine: int, data: str) -> None:
        numbers = range(1, machines + 1)
        super().__init__(
            machines * brokers_per_machine,
            data,
            {
                "tidelog.metadata.store.allow.plaintext": "true",
                "tidelog.cluster.secret.file": os.path.join(data, SECRET),
            },
            racks=[f"machine-{machine}" for machine in numbers],
            fault_switches=True,
            wait_s=READY_S,
            entry=machine_clock.ENTRY,
        )
        binary = etcd_member.find_etcd()
        self.machines = list(numbers)
        self.network = Network(self.machines, data)
        self.etcd = {m: EtcdMember(self.network, m, data, binary) for m in self.machines}
        self._ports = {broker: PORT + self._place(broker) for broker in self.ids}

    # -- the cluster

    def start(self) -> None:
        """Start etcd, then all brokers. Raises ClusterFailed, CannotMakeMachines."""
        try:
            self.network.open()
            self._write_secret()
            for machine, member in self.etcd.items():
                self.set_clock(machine, 0)
                member.start()
            etcd_member.await_ready(list(self.etcd.values()))
            super().start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop brokers and etcd, and remove the machines."""
        try:
            super().close()
        finally:
            for member in self.etcd.values():
                member.kill()
            self.network.close()

    def machine_of(self, broker: int) -> int:
        """The machine of a broker."""
        return self.machines[(broker - 1) % len(self.machines)]

    def brokers_of(self, machine: int) -> list[int]:
        """The brokers of a machine."""
        return [broker for broker in self.ids if self.machine_of(broker) == machine]

    # -- faults of machines

    def kill_machines(self, machines: Sequence[int]) -> None:
        """End all processes of machines at once, as a power failure: no peer is notified."""
        for machine in machines:
            self.network.cut(machine)
        self._signal(machines, signal.SIGKILL)
        for machine in machines:
            self.etcd[machine].await_end()
            for broker in self.brokers_of(machine):
                self.kill(broker)

    def start_machine(self, machine: int) -> None:
        """Boot a machine: start etcd and the brokers whose processes have ended."""
        self.network.reboot(machine)
        self.network.mend(machine)
        if not self.etcd[machine].is_running():
            self.etcd[machine].start()
        for broker in self.brokers_of(machine):
            if not self.is_running(broker):
                self.start_broker(broker, wait=False)

    def pause_machine(self, machine: int) -> None:
        """Pause all processes of a machine (SIGSTOP)."""
        self._signal([machine], signal.SIGSTOP)

    def resume_machine(self, machine: int) -> None:
        """Continue all processes of a machine (SIGCONT)."""
        self._signal([machine], signal.SIGCONT)

    def etcd_leader(self) -> int | None:
        """The machine of etcd's leader; None if there is none."""
        return next((machine for machine, one in self.etcd.items() if one.is_leader()), None)

    def lead_etcd(self, machine: int) -> None:
        """Make the member of this machine etcd's leader."""
        leader = self.etcd_leader()
        if leader is not None and leader != machine:
            self.etcd[leader].hand_over(self.etcd[machine])

    def set_clock(self, machine: int, offset_s: int) -> None:
        """Set the wall clock of a machine's brokers: how far it is ahead of the right time."""
        machine_clock.set_clock(self._clock(machine), offset_s)

    def _write_secret(self) -> None:
        """Write the cluster's secret, as an operator who copies it to each machine."""
        path = os.path.join(self.plan.data, SECRET)
        if not os.path.exists(path):
            os.makedirs(self.plan.data, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(os.urandom(32).hex())

    def _signal(self, machines: Sequence[int], number: int) -> None:
        for machine in machines:
            for broker in self.brokers_of(machine):
                self._processes[broker].send(number)
            self.etcd[machine].send(number)

    # -- what differs from brokers of this machine

    def host(self, broker: int) -> str:
        """The address of the broker's machine."""
        return self.network.address(self.machine_of(broker))

    def internal_host(self, broker: int) -> str:
        """The address of the broker's machine."""
        return self.host(broker)

    def _reserve(self, broker: int, port: int) -> int:  # noqa: ARG002
        return port  # nothing else runs on the machine

    def _own_settings(self, broker: int) -> list[str]:
        machine, host = self.machine_of(broker), self.host(broker)
        return [
            f"node.id={broker}",
            f"log.dirs={data_folder.log_dir(self.plan.data, broker)}",
            f"listeners=PLAINTEXT://{host}:{self._ports[broker]}",
            f"tidelog.internal.listener={host}:{INTERNAL_PORT + self._place(broker)}",
            f"tidelog.metadata.store={etcd_member.store_url(self.network, machine)}",
            f"broker.rack=machine-{machine}",
        ]

    def _command(self, broker: int) -> tuple[Sequence[str], Mapping[str, str]]:
        machine = self.machine_of(broker)
        return self.network.command(machine), {machine_clock.FILE_VARIABLE: self._clock(machine)}

    def _place(self, broker: int) -> int:
        """The position of a broker among those of its machine, from 0."""
        return (broker - 1) // len(self.machines)

    def _clock(self, machine: int) -> str:
        return os.path.join(self.plan.data, f"machine-{machine}.clock")
