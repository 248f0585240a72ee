"""All checks of a run, on the journals, the idle cluster and the stopped brokers' disks.

Only one partition is in memory at a time.
"""

from collections.abc import Callable, Iterator

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.partition_check import History, check_partition
from tidelog.apps.verify.checker.replicas import Served, check_replicas
from tidelog.apps.verify.journals import Kind, read_rows
from tidelog.apps.verify.nemesis.failover import Failover, Injected, failovers, longest_pauses
from tidelog.apps.verify.whole_logs import read_log, stored_batches
from tidelog.core.types import TopicPartition
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster


class RunChecks:
    """The findings so far, and the number of records, batches and replicas checked."""

    def __init__(
        self, topic: str, tag: bytes, partitions: int, progress: Callable[[str], None]
    ) -> None:
        self.findings = Findings()
        self.waits: list[Failover] = []
        self.pauses: list[int] = []
        """The longest pause of writes by fault, of all partitions, in ticks."""
        self.records = 0
        self.batches = 0
        self.leader_changes = 0
        self.replicas_compared = 0
        self._topic = topic
        self._tag = tag
        self._progress = progress
        self._partitions = range(partitions)
        self._served: dict[TopicPartition, Served] = {}

    def check_served(self, cluster: Cluster, history: History, faults: list[Injected]) -> None:
        """Read every partition again and compare it with everything that clients saw."""
        for partition in self._partitions:
            self._progress(f"checking partition {partition} of {len(self._partitions)}")
            log = read_log(cluster, self._topic, partition, self._tag, self.findings)
            self.findings.merge(check_partition(log, history))
            self.waits += failovers(faults, partition, self._acks(history, partition))
            pauses = longest_pauses(faults, self._acks(history, partition))
            self.pauses = list(map(max, pauses, self.pauses or pauses))
            self._note_log(self._topic, log)

    def _note_log(self, topic: str, log: FinalLog) -> None:
        self._served[TopicPartition(topic, log.partition)] = Served.of(log)
        self.records += len(log.values)
        self.batches += log.batches
        self.leader_changes += max(0, len(set(log.leader_epochs)) - 1)

    def _acks(self, history: History, partition: int) -> list[Iterator[tuple[int, ...]]]:
        """The outcomes of the sends to a partition, by producer."""
        folder = history.folder
        return [read_rows(folder, Kind.ACKS, str(name), partition) for name in history.sent]

    def check_disks(self, local: LocalCluster) -> None:
        """Stop all brokers cleanly; compare their logs with each other and with the served log."""
        self._progress("stopping brokers, comparing their disks")
        topics = sorted({key.topic for key in self._served})
        placed = local.metadata(local.ids[0], topics).topics
        local.close()
        for broker in local.ids:
            if local.exit_code(broker):
                why = local.how_it_ended(broker)
                self.findings.add(
                    "broker failed", f"broker {broker} failed while it stopped: {why}"
                )
        for place, served in self._served.items():
            brokers = placed[place.topic][place.partition].replicas
            replicas = {b: stored_batches(local.log_dir(b), place) for b in brokers}
            self.findings.merge(check_replicas(self._name(place), served, dict(replicas)))
            self.replicas_compared += len(replicas)

    def _name(self, place: TopicPartition) -> int | str:
        """Return the name of a partition for examples: its number, if there is one topic."""
        return place.partition if place.topic == self._topic else str(place)
