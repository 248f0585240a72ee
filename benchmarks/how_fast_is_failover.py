"""The time for which a partition can't be written after its leader is killed, or hangs.

A librdkafka producer (acks=all, idempotent) sends a record every few milliseconds to one partition
of a cluster with three brokers. The partition's leader is killed with -9, or stopped with SIGSTOP.
The printed time is from that moment to the first acknowledgement of a record sent after it.

`--controller` measures the controller instead, in a new cluster each time: it leads the partition,
and is killed, stopped cleanly, or cut off from its peers. `--machines` puts the brokers on machines
with etcd (network namespaces, needs root); then a kill ends all processes of the machine, and
`--fault cut-in` lets it send but receive nothing.
`--etcd-leader` makes that machine's etcd the leader before.

Apache Kafka needs 10 s for either at its defaults. For the hang the client's own time-outs are one
second: by default the client waits for the silent broker for longer than Kafka needs.

    make bench-failover
    .venv/bin/python benchmarks/how_fast_is_failover.py --controller --machines
    .venv/bin/python benchmarks/how_fast_is_failover.py --controller --machines --etcd-leader \
        --fault kill --times 10
"""

import argparse
import statistics
import tempfile
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from tidelog.apps.verify.machines.machine_cluster import MachineCluster
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

TOPIC = "failover"
EVERY_S = 0.005
FAULTS = ["stop", "kill", "cut"]
CUT_IN = "cut-in"


class Writer:
    """Sends to one partition continuously; records when each record was acknowledged.

    With more partitions the client is connected to their leaders too. librdkafka needs one second
    more to find a leader if the dead broker was its only connection.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str = TOPIC,
        partitions: int = 1,
        partition: int = 0,
        **settings: object,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._others = range(1, partitions)
        self.sent = 0
        self.acknowledged: dict[int, float] = {}
        self.failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def send_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send()

    def send(self) -> None:
        number = self.sent
        self.sent += 1

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged[number] = time.monotonic()
            else:
                self.failed += 1

        self._producer.produce(
            self._topic, b"%d" % number, partition=self._partition, on_delivery=on_delivery
        )
        for partition in self._others:
            self._producer.produce(self._topic, b"%d" % number, partition=partition)
        self._producer.poll(EVERY_S)

    def gap_after(self, moment: float, patience_s: float) -> float:
        """Return the seconds from `moment` until a record sent from now on is acknowledged."""
        first = self.sent
        while time.monotonic() < moment + patience_s:
            self.send()
            later = [at for number, at in self.acknowledged.items() if number >= first]
            if later:
                return min(later) - moment
        raise SystemExit(f"no acknowledgement within {patience_s} s")

    def finish(self) -> None:
        self._producer.flush(30)


def leader_of(cluster: LocalCluster) -> int:
    with Cluster(cluster.bootstrap) as client:
        return client.leader(TOPIC, 0).leader


def measure(cluster: LocalCluster, writer: Writer, fault: str, patience_s: float) -> float:
    leader = leader_of(cluster)
    writer.send_for(1.0)
    moment = time.monotonic()
    if fault == "kill":
        cluster.kill(leader)
    else:
        cluster.pause(leader)
    gap = writer.gap_after(moment, patience_s)
    writer.send_for(0.5)
    if fault == "kill":
        cluster.start_broker(leader)
    else:
        cluster.resume(leader)
    # librdkafka waits for up to ten seconds (reconnect.backoff.max.ms) before it reconnects to
    # a broker that it lost. Without this pause we would measure the client, not the cluster.
    writer.send_for(12.0)
    return gap


def measure_controller(fault: str, *, machines: bool, etcd_leader: bool) -> float:
    """Return the gap in a new cluster; the controller fails, which leads the partition."""
    with tempfile.TemporaryDirectory(prefix="tidelog-failover-") as data:
        cluster = (
            MachineCluster(3, 1, data)
            if machines
            else LocalCluster(brokers=3, data=data, fault_switches=True)
        )
        with cluster:
            with Cluster(cluster.bootstrap) as client:
                create_topic(client, TOPIC, 3, 3)
                controller = cluster.metadata(cluster.ids[0]).controller_id
                led = {client.leader(TOPIC, index).leader: index for index in range(3)}
            writer = Writer(
                cluster.bootstrap, partition=led[controller], request_timeout_ms=1000,
                socket_timeout_ms=1000,
            )  # fmt: skip
            if etcd_leader and isinstance(cluster, MachineCluster):
                cluster.lead_etcd(cluster.machine_of(controller))
            writer.send_for(4.0)
            moment = time.monotonic()
            ending = threading.Thread(target=fail, args=(cluster, controller, fault))
            ending.start()
            while fault != "stop" and ending.is_alive():
                writer.send()  # may be acknowledged before the fault takes effect
            gap = writer.gap_after(moment, 40.0)
            ending.join()
            if fault in ("cut", CUT_IN):
                mend(cluster, controller)
            writer.finish()
            return gap


def fail(cluster: LocalCluster, broker: int, fault: str) -> None:
    """Kill a broker or its machine, stop it cleanly, or cut it off from its peers."""
    machines = cluster if isinstance(cluster, MachineCluster) else None
    if fault == "stop":
        cluster.stop(broker)
    elif fault == "kill" and machines is not None:
        machines.kill_machines([machines.machine_of(broker)])
    elif fault == "kill":
        cluster.kill(broker)
    elif machines is not None:
        network = machines.network
        cut = network.cut_incoming if fault == CUT_IN else network.cut
        cut(machines.machine_of(broker))
    else:
        cluster.isolate(broker)


def mend(cluster: LocalCluster, broker: int) -> None:
    if isinstance(cluster, MachineCluster):
        cluster.network.mend(cluster.machine_of(broker))
    else:
        cluster.heal(broker)


def measure_controllers(
    faults: list[str], times: int, *, machines: bool, etcd_leader: bool
) -> None:
    for fault in faults:
        gaps = [
            measure_controller(fault, machines=machines, etcd_leader=etcd_leader)
            for _ in range(times)
        ]
        each = " ".join(f"{gap:.3f}" for gap in gaps)
        print(
            f"controller, {fault}: median {statistics.median(gaps):.3f} s, each: {each}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--pauses", type=int, default=2)
    parser.add_argument("--controller", action="store_true", help="measure the controller")
    parser.add_argument("--machines", action="store_true", help="with --controller: on machines")
    parser.add_argument(
        "--etcd-leader", action="store_true", help="with --machines: it has etcd's leader too"
    )
    parser.add_argument(
        "--fault",
        action="append",
        choices=[*FAULTS, CUT_IN],
        help="with --controller: only this one",
    )
    parser.add_argument("--times", type=int, default=3, help="with --controller: of each fault")
    arguments = parser.parse_args()
    if arguments.controller:
        measure_controllers(
            arguments.fault or FAULTS,
            arguments.times,
            machines=arguments.machines,
            etcd_leader=arguments.etcd_leader,
        )
        return
    with LocalCluster(brokers=3) as cluster:
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, TOPIC, 1, 3)
        short_timeouts = {"request_timeout_ms": 1000, "socket_timeout_ms": 1000}
        for fault, times, settings in (
            ("kill", arguments.kills, {}),
            ("pause", arguments.pauses, short_timeouts),
        ):
            if not times:
                continue
            writer = Writer(cluster.bootstrap, **settings)
            writer.send_for(2.0)
            gaps = [measure(cluster, writer, fault, 40.0) for _ in range(times)]
            writer.finish()
            each = " ".join(f"{gap:.3f}" for gap in gaps)
            sent = f"sent {writer.sent}, acknowledged {len(writer.acknowledged)}"
            print(f"{fault}: median {statistics.median(gaps):.3f} s, each: {each}; {sent}")


if __name__ == "__main__":
    main()
