"""Run the demo: three brokers, a producer that writes all the time, and a killed leader.

The demo starts three broker processes and a librdkafka producer with acks=all. It kills the leader
with kill -9 during the writes, and starts that broker again. With Spark, a streaming job lands and
aggregates the records during the whole run. At the end the demo reads all records, and compares
them with the acknowledgements that the producer received.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from tidelog.apps.demo.history import IN_SYNC_AGAIN, KILLED, PLACE, RESTARTED, History
from tidelog.apps.demo.observer import CLOSE_S, EVERY_S, Observer, Round
from tidelog.apps.demo.orders import PARTITION, SUMS_TOPIC, TOPIC, number_of
from tidelog.apps.demo.outcome import Failover, Outcome, Records, Step, compare_records
from tidelog.apps.demo.timeline import in_sync, leader_of, marks_of
from tidelog.apps.demo.writer import LastOrderFailed, Writer
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster

if TYPE_CHECKING:
    from tidelog.apps.demo.outcome import Audited, SparkPart
    from tidelog.apps.demo.spark_watch import SparkWatch

UNDISTURBED_S = 1.5
"""How long the writer runs without a fault before and after each fault."""
WAIT_MAX_S = 120.0
"""Long, because a busy machine may hold up a broker."""
POLL_S = 0.02


class PlayFailed(Exception):
    """The cluster did not reach an expected state. The message is one line."""


class Audience(NamedTuple):
    """The callbacks that receive the output of the demo."""

    say: Callable[[str], None]
    """Called once for each step."""
    note: Callable[[str], None]
    """Called repeatedly during a wait, with what the demo waits for."""
    look: Callable[[str], None]
    """Called at the end with the bootstrap address, while the cluster still runs."""


class Play:
    """One run of the demo."""

    def __init__(self, audience: Audience, work: str, *, with_spark: bool = False) -> None:
        self._audience = audience
        self._work = work
        self._with_spark = with_spark
        self._history = History()
        self._steps: list[Step] = []

    def run(self) -> tuple[Outcome, History]:
        """Run the demo; return its outcome and history. Raises PlayFailed, JobFailed."""
        try:
            return self._run()
        except (ClusterFailed, ClientError, LastOrderFailed) as error:
            raise PlayFailed(str(error)) from error

    def _run(self) -> tuple[Outcome, History]:
        with ExitStack() as stack:
            data = os.path.join(self._work, "data")
            cluster = LocalCluster(brokers=3, data=data, settings={"tidelog.log.format": "json"})
            with cluster:
                started_s = self._now_s()
                pids = ", ".join(str(cluster.pid(broker)) for broker in cluster.ids)
                self._say(f"three brokers run at {cluster.bootstrap}, process ids {pids}")
                job = self._start_spark(cluster.bootstrap, stack)
                result = self._run_on_cluster(cluster, job)
            spark = None
            if job is not None and result.spark is not None:
                job.add_landed(self._history)
                spark = result.spark(self._audit(job, cluster))
        self._history.add_rounds(result.rounds)
        for broker in cluster.ids:
            self._history.add_log(cluster.log_path(broker))
        outcome = Outcome(
            brokers=len(cluster.ids),
            started_s=started_s,
            seconds=self._now_s(),
            failover=result.failover,
            sent=result.writer.sent,
            failed=result.writer.failed,
            log=result.log,
            spark=spark,
            steps=self._steps,
        )
        return outcome, self._history

    # -- steps -----------------------------------------------------------------------------

    def _start_spark(self, bootstrap: str, stack: ExitStack) -> "SparkWatch | None":
        """Start the Spark job, if requested. Spark starts slowly, so the writer runs meanwhile."""
        if not self._with_spark:
            return None
        from tidelog.apps.demo.spark_watch import SparkWatch

        watch = SparkWatch(bootstrap, self._work, self._audience.note)
        stack.push(watch.job)
        return watch

    def _run_on_cluster(self, cluster: LocalCluster, job: "SparkWatch | None") -> "_ClusterResult":
        """Run all steps that need running brokers."""
        with ExitStack() as stack:
            client = stack.enter_context(Cluster(cluster.bootstrap))
            create_topic(client, TOPIC, 1, 3)
            if job is not None:
                create_topic(client, SUMS_TOPIC, 1, 3)
            ports = {broker: cluster.port(broker) for broker in cluster.ids}
            observer = Observer(ports, TOPIC, PARTITION)
            writer = Writer(cluster.bootstrap)
            stack.callback(observer.stop)
            stack.callback(writer.stop)
            observer.start()
            writer.start()
            leader = client.leader(TOPIC, PARTITION).leader
            self._say(
                f"broker {leader} leads {TOPIC}/{PARTITION}; a producer writes with acks=all until"
                " the end"
            )
            if job is None:
                self._write_undisturbed()
            else:
                self._await_spark(job, writer)
            failover = self._kill_and_restart(cluster, observer, writer, leader, job)
            self._write_undisturbed()
            writer.stop(close_windows=job is not None)
            records = Reader(client).read(TOPIC, PARTITION, 0)
            found = [(record.offset, number_of(record.value)) for record in records]
            log = compare_records("log", writer.acked, found)
            self._say(
                f"read {log.found:,} records from the log; {log.acknowledged:,} were acknowledged"
            )
            spark = None if job is None else self._finish_spark(job, client, writer)
            if job is None:
                self._write_undisturbed(UNDISTURBED_S / 5)
            rounds = observer.stop()
            self._audience.look(cluster.bootstrap)
            return _ClusterResult(failover, writer, log, rounds, spark)

    def _await_spark(self, job: "SparkWatch", writer: Writer) -> None:
        took_s = job.await_session(lambda: writer.acknowledged)
        self._say(
            f"the Spark session started in {took_s:.1f} s; {writer.acknowledged:,} records so far"
        )
        took_s = job.await_batches(lambda: writer.acknowledged)
        self._say(f"Spark completed its first micro-batches {took_s:.1f} s after its start")
        self._write_undisturbed()

    def _finish_spark(
        self, job: "SparkWatch", client: Cluster, writer: Writer
    ) -> "Callable[[Audited], SparkPart]":
        job.finish(writer.acked)
        marks = marks_of(self._history.events)
        part = job.part(client, writer.acked, marks, self._history.began_s)
        self._say("Spark wrote every order and closed every window; compared lake, table and topic")
        return part

    def _audit(self, job: "SparkWatch", cluster: LocalCluster) -> "Audited":
        audited = job.audit([cluster.log_dir(broker) for broker in cluster.ids])
        result = "all replicas agree" if audited.holds else "replicas DIFFER"
        brokers = len(cluster.ids)
        self._say(
            f"audited the files of {brokers} stopped brokers in {audited.took_s:.1f} s: {result}"
        )
        return audited

    def _kill_and_restart(
        self,
        cluster: LocalCluster,
        observer: Observer,
        writer: Writer,
        leader: int,
        job: "SparkWatch | None",
    ) -> Failover:
        """Kill the leader with kill -9, then restart it and wait until it is in sync."""
        self._say(f"all in-sync replicas have acknowledged {writer.acknowledged:,} records")
        observer.every_s = CLOSE_S
        self._write_undisturbed(UNDISTURBED_S / 3)
        killed_s = time.monotonic()
        cluster.kill(leader)
        self._history.add(KILLED, killed_s, leader, f"kill -9 broker {leader}")
        self._say(f"killed broker {leader}, the leader, with kill -9; the producer still writes")
        successor, epoch, start = self._await_successor(observer, leader)
        self._await(
            "an acknowledgement by the new leader",
            lambda: writer.first_ack_from(start, killed_s) is not None,
        )
        first = writer.first_ack_from(start, killed_s)
        assert first is not None
        failover_s = first.at_s - killed_s
        self._say(
            f"broker {successor} leads from offset {start:,} under epoch {epoch};"
            f" next acknowledgement {failover_s * 1000:.0f} ms after the kill"
        )
        self._write_undisturbed(UNDISTURBED_S / 2)
        observer.every_s = EVERY_S
        if job is not None:
            landed = job.await_landed(start + 1)
            self._say(
                f"the Spark job still writes: {landed:,} orders, {landed - start:,} since the kill"
            )
        self._write_undisturbed(UNDISTURBED_S / 2)
        observer.every_s = CLOSE_S
        started_s = time.monotonic()
        cluster.start_broker(leader, wait=False)
        self._history.add(RESTARTED, started_s, leader, f"broker {leader} restarts")
        whole = len(cluster.ids)
        self._await(f"broker {leader} to be in sync", lambda: len(_isr(observer)) == whole)
        rejoined_s = time.monotonic()
        self._history.add(IN_SYNC_AGAIN, rejoined_s, text="all in sync again", fields=PLACE)
        observer.every_s = EVERY_S
        self._say(
            f"broker {leader} restarted and was in sync after {rejoined_s - started_s:.1f} s;"
            f" in sync: {_names(_isr(observer))}"
        )
        return Failover(
            killed=leader,
            successor=successor,
            epoch=epoch,
            failover_s=failover_s,
            rejoin_s=rejoined_s - started_s,
            in_sync=list(_isr(observer)),
        )

    def _await_successor(self, observer: Observer, killed: int) -> tuple[int, int, int]:
        """Wait for a new leader; return the leader, its epoch and the epoch's start offset."""
        found: list[tuple[int, int, int]] = []

        def elected() -> bool:
            last = observer.last
            leader = None if last is None else leader_of(last)
            if leader is None or leader.leader == killed or not leader.epochs:
                return False
            epoch, start = leader.epochs[-1]
            if epoch != leader.leader_epoch:
                return False
            found.append((leader.leader, epoch, start))
            return True

        self._await("another leader", elected)
        return found[-1]

    # -- output and waiting ----------------------------------------------------------------

    def _now_s(self) -> float:
        return time.monotonic() - self._history.began_s

    def _say(self, text: str) -> None:
        self._steps.append(Step(self._now_s(), text))
        self._audience.say(text)

    def _write_undisturbed(self, seconds: float = UNDISTURBED_S) -> None:
        time.sleep(seconds)

    def _await(self, what: str, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_MAX_S
        while not ready():
            if time.monotonic() > until:
                raise PlayFailed(f"timed out after {WAIT_MAX_S:g} s while waiting for {what}")
            self._audience.note(f"waiting for {what}")
            time.sleep(POLL_S)


class _ClusterResult(NamedTuple):
    """The results of the steps that need running brokers."""

    failover: Failover
    writer: Writer
    log: Records
    rounds: list[Round]
    spark: "Callable[[Audited], SparkPart] | None"


def _isr(observer: Observer) -> tuple[int, ...]:
    last = observer.last
    return () if last is None else in_sync(last)


def _names(brokers: list[int] | tuple[int, ...]) -> str:
    return ", ".join(str(broker) for broker in sorted(brokers))
