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

from tidelog.apps.demo.comparison import Records, compare_records
from tidelog.apps.demo.observer import CLOSE_S, EVERY_S, Observer, Round
from tidelog.apps.demo.orders import PARTITION, SUMS_TOPIC, TOPIC, number_of
from tidelog.apps.demo.outcome import Failover, Outcome, Step
from tidelog.apps.demo.timeline import Mark, Piece, Timeline, in_sync, leader_of, timeline
from tidelog.apps.demo.writer import Writer
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster

if TYPE_CHECKING:
    from tidelog.apps.demo.outcome import Audited, SparkPart
    from tidelog.apps.demo.spark_watch import SparkWatch

CALM_S = 1.5
"""How long the writer runs without a fault before and after each fault."""
PATIENCE_S = 20.0
LOOK_S = 0.02


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
        self._began_s = time.monotonic()
        self._steps: list[Step] = []
        self._marks: list[Mark] = []

    def run(self) -> tuple[Outcome, Timeline]:
        """Run the demo; return its outcome and timeline. Raises PlayFailed, JobFailed."""
        try:
            return self._run()
        except (ClusterFailed, ClientError) as error:
            raise PlayFailed(str(error)) from error

    def _run(self) -> tuple[Outcome, Timeline]:
        with ExitStack() as stack:
            data = os.path.join(self._work, "data")
            cluster = LocalCluster(brokers=3, data=data)
            with cluster:
                started_s = self._now_s()
                pids = ", ".join(str(cluster.pid(broker)) for broker in cluster.ids)
                self._say(f"three brokers at {cluster.bootstrap}, pids {pids}")
                job = self._start_spark(cluster.bootstrap, stack)
                shown = self._on_the_cluster(cluster, job)
            landed: Piece = []
            spark = None
            if job is not None and shown.spark is not None:
                landed = job.landed(self._began_s)
                spark = shown.spark(self._audit(job, cluster))
        outcome = Outcome(
            brokers=len(cluster.ids),
            started_s=started_s,
            seconds=self._now_s(),
            failover=shown.failover,
            sent=shown.writer.sent,
            failed=shown.writer.failed,
            log=shown.log,
            spark=spark,
            steps=self._steps,
        )
        return outcome, timeline(shown.rounds, self._began_s, self._marks, landed)

    # -- steps -----------------------------------------------------------------------------

    def _start_spark(self, bootstrap: str, stack: ExitStack) -> "SparkWatch | None":
        """Start the Spark job, if requested. Spark starts slowly, so the writer runs meanwhile."""
        if not self._with_spark:
            return None
        from tidelog.apps.demo.spark_watch import SparkWatch

        return stack.enter_context(SparkWatch(bootstrap, self._work, self._audience.note))

    def _on_the_cluster(self, cluster: LocalCluster, job: "SparkWatch | None") -> "_Shown":
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
                f"topic {TOPIC}: broker {leader} leads; a producer writes with acks=all and"
                " does not stop"
            )
            if job is None:
                self._calm()
            else:
                self._await_spark(job, writer)
            failover = self._lose_and_return(cluster, observer, writer, leader, job)
            self._calm()
            writer.stop(close_windows=job is not None)
            records = Reader(client).read(TOPIC, PARTITION, 0)
            found = [(record.offset, number_of(record.value)) for record in records]
            log = compare_records("log", writer.promises, found)
            self._say(f"{log.found:,} records read back, compared with {log.promised:,} promises")
            spark = None if job is None else self._finish_spark(job, client, writer)
            if job is None:
                self._calm(CALM_S / 5)
            rounds = observer.stop()
            self._audience.look(cluster.bootstrap)
            return _Shown(failover, writer, log, rounds, spark)

    def _await_spark(self, job: "SparkWatch", writer: Writer) -> None:
        took_s = job.await_session(lambda: writer.acknowledged)
        self._say(f"Spark runs after {took_s:.1f} s; {writer.acknowledged:,} records so far")
        took_s = job.await_batches(lambda: writer.acknowledged)
        self._say(f"Spark lands and aggregates, {took_s:.1f} s after its start")
        self._calm()

    def _finish_spark(
        self, job: "SparkWatch", client: Cluster, writer: Writer
    ) -> "Callable[[Audited], SparkPart]":
        job.finish(writer.promises)
        part = job.part(client, writer.promises, self._marks, self._began_s)
        self._say("Spark landed every order and closed every window; lake, table, topic compared")
        return part

    def _audit(self, job: "SparkWatch", cluster: LocalCluster) -> "Audited":
        audited = job.audit([cluster.log_dir(broker) for broker in cluster.ids])
        word = "agree" if audited.holds else "DO NOT AGREE"
        self._say(
            f"audit of {len(cluster.ids)} stopped brokers' files in {audited.took_s:.1f} s:"
            f" all replicas {word}"
        )
        return audited

    def _lose_and_return(
        self,
        cluster: LocalCluster,
        observer: Observer,
        writer: Writer,
        leader: int,
        job: "SparkWatch | None",
    ) -> Failover:
        """Kill the leader with kill -9, then restart it and wait until it is in sync."""
        self._say(f"{writer.acknowledged:,} records acknowledged by all in-sync replicas")
        observer.every_s = CLOSE_S
        self._calm(CALM_S / 3)
        killed_s = time.monotonic()
        cluster.kill(leader)
        self._mark(f"kill -9 broker {leader}", "kill", killed_s)
        self._say(f"kill -9 for broker {leader}, the leader, while the producer goes on")
        successor, epoch, start = self._await_successor(observer, leader)
        self._await(
            "an acknowledgement by the new leader",
            lambda: writer.first_ack_from(start, killed_s) is not None,
        )
        first = writer.first_ack_from(start, killed_s)
        assert first is not None
        failover_s = first.at_s - killed_s
        self._say(
            f"broker {successor} leads, epoch {epoch} from offset {start:,};"
            f" next acknowledgement after {failover_s * 1000:.0f} ms"
        )
        self._calm(CALM_S / 2)
        observer.every_s = EVERY_S
        if job is not None:
            landed = job.await_landed(start + 1)
            self._say(f"the Spark job goes on: {landed:,} landed, {landed - start:,} of them new")
        self._calm(CALM_S / 2)
        observer.every_s = CLOSE_S
        started_s = time.monotonic()
        cluster.start_broker(leader, wait=False)
        self._mark(f"broker {leader} starts again", "start", started_s)
        whole = len(cluster.ids)
        self._await(f"broker {leader} in sync", lambda: len(_isr(observer)) == whole)
        rejoined_s = time.monotonic()
        self._mark("all in sync again", "whole", rejoined_s)
        observer.every_s = EVERY_S
        self._say(
            f"broker {leader} is back and in sync after {rejoined_s - started_s:.1f} s:"
            f" {_names(_isr(observer))}"
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
        return time.monotonic() - self._began_s

    def _say(self, text: str) -> None:
        self._steps.append(Step(self._now_s(), text))
        self._audience.say(text)

    def _mark(self, text: str, kind: str, at_s: float) -> None:
        self._marks.append(Mark(at_s - self._began_s, text, kind))

    def _calm(self, seconds: float = CALM_S) -> None:
        time.sleep(seconds)

    def _await(self, what: str, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not ready():
            if time.monotonic() > until:
                raise PlayFailed(f"no {what} within {PATIENCE_S:g} s")
            self._audience.note(f"waits for {what}")
            time.sleep(LOOK_S)


class _Shown(NamedTuple):
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
