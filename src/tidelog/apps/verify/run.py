"""One run of `tidelog verify`, from starting brokers to the report.

Start a cluster (or use the given one) and create a topic for the run. Run producers and consumers
while the nemesis injects faults. Stop the producers, wait until all replicas are in sync, and let
the consumers catch up. Read every partition again, stop the cluster, compare the disks.

Invariant: no process of the run survives it, whatever happens. The folder is removed, unless the
user set `--keep` or the run found a broken guarantee.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.util import find_spec

from tidelog.apps.verify.checker.partition_check import History
from tidelog.apps.verify.machines.namespaces import CannotMakeMachines
from tidelog.apps.verify.nemesis.failover import Injected
from tidelog.apps.verify.nemesis.faults import Nemesis, make_while_down
from tidelog.apps.verify.nemesis.plan import make_plan
from tidelog.apps.verify.report import BROKERS, MIN_ISR, Figures, Options, Report
from tidelog.apps.verify.run_checks import RunChecks
from tidelog.apps.verify.run_history import RunHistory
from tidelog.apps.verify.workload.worker import Task
from tidelog.apps.verify.workload.worker_processes import Worker, WorkerFailed, Workers
from tidelog.core.settings.setting import WrongValue
from tidelog.shell.client import admin
from tidelog.shell.client.admin import registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import list_offset
from tidelog.shell.client.security import read_security, read_security_texts
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster
from tidelog.shell.supervisor.metadata_probe import ProbeFailed

Progress = Callable[[float, str], None]
"""Receives progress: seconds of the workload that have passed, and a short status text."""
FIRST_ACK_S = 120.0
RESPONSE_S = 60.0
"""Long, because a busy machine may hold up a broker."""
SETTLE_S = 60.0
STEP_S = 0.1
SEGMENT_BYTES = 1 << 20
"""Small, so that segments roll within a run."""


class RunFailed(Exception):
    """The run could not complete; the text is one line with the reason and what to do."""


def verify(options: Options, progress: Progress) -> Report:
    """Run the test. Raises RunFailed if it can't complete; anomalies are in the report."""
    if options.client != "own" and find_spec("confluent_kafka") is None:
        raise RunFailed(
            "librdkafka's Python package is missing: pip install confluent-kafka,"
            " or use --client own"
        )
    if options.client != "own":
        _check_librdkafka(options)
    folder = options.keep or tempfile.mkdtemp(prefix="tidelog-verify-")
    os.makedirs(folder, exist_ok=True)
    keep = options.keep is not None
    try:
        report = _kind_of_run(options)(options, folder, progress).make()
        keep |= not report.holds
        report = report._replace(kept=folder if keep else None)
        with open(os.path.join(folder, "report.json"), "w") as file:
            json.dump({"holds": report.holds, **report.as_data()}, file, indent=2)
        return report
    except (CannotMakeMachines, ClientError, ClusterFailed, ProbeFailed, WorkerFailed) as error:
        raise RunFailed(str(error)) from error
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _check_librdkafka(options: Options) -> None:
    from tidelog.apps.verify.workload.librdkafka_security import librdkafka_security

    try:
        librdkafka_security(dict(options.security.texts))
    except WrongValue as wrong:
        raise RunFailed(str(wrong)) from None


def _kind_of_run(options: Options) -> "type[Run]":
    if not options.transactions:
        return Run
    from tidelog.apps.verify.transactions.run import TransactionRun

    return TransactionRun


class Run:
    """One run: its workers, nemesis, findings and clock."""

    def __init__(self, options: Options, folder: str, progress: Progress) -> None:
        self._options = options
        self._folder = folder
        self._progress = progress
        tag = os.urandom(8)
        self._tag = tag
        self._topic = f"tidelog-verify-{tag.hex()}"
        self._began_ns = time.monotonic_ns()
        self._began: float | None = None
        """When the first record was acknowledged."""
        self._workers = Workers()
        self._nemesis: Nemesis | None = None
        self._history_events: RunHistory | None = None
        self._checks = self._new_checks()
        self._troubles: list[str] = []
        self._last_acked = (0.0, 0)
        self._rate = 0.0
        self._security = dict(options.security.texts)
        """The security settings of clients, under Kafka's names."""

    def _new_checks(self) -> RunChecks:
        options = self._options
        return RunChecks(self._topic, self._tag, options.partitions, self._note_check)

    def _note_check(self, what: str) -> None:
        self._progress(self._options.seconds, what)

    def make(self) -> Report:
        """Run all steps and return the report."""
        with ExitStack() as stack:
            local, bootstrap = None, self._options.bootstrap
            if bootstrap is None:
                self._progress(0, "starting brokers")
                data = os.path.join(self._folder, "data")
                local = stack.enter_context(self._cluster(data))
                bootstrap = local.bootstrap
                if local.client_settings:
                    self._security = read_security_texts(local.client_settings)
            security = read_security(self._security)
            cluster = stack.enter_context(
                Cluster(bootstrap, "verify", RESPONSE_S, security=security)
            )
            if local is not None and "kill" in self._options.kinds:
                self._open(local, cluster)
            else:
                self._create_topic(cluster)
            if self._options.bootstrap is not None:
                stack.callback(self._delete_topic, cluster)
            stack.callback(self._workers.close)
            if self._options.history is not None:
                recorded = self._history_events = RunHistory(self._topic, self._ticks)
                stack.callback(self._write_history, recorded, self._options.history, local)
                recorded.start(bootstrap, sorted(cluster.refresh().brokers), security)
            if local is not None:
                self._nemesis = self._nemesis_of(local)
            seconds = self._work(bootstrap)
            if self._nemesis is not None:
                self._settle(self._nemesis)
            self._end_readers(cluster)
            faults = self._nemesis.injected if self._nemesis else []
            self._checks.check_served(cluster, self._history(), faults)
            if self._history_events is not None:
                self._history_events.stop()  # the next check stops the brokers
            if local is not None:
                self._checks.check_disks(local)
            return self._report(seconds, faults)

    def _write_history(self, events: RunHistory, path: str, local: LocalCluster | None) -> None:
        """Write the history file, also if the run failed."""
        self._progress(self._options.seconds, "writing the history")
        events.stop()
        if self._nemesis is not None:
            events.add_faults(self._nemesis.injected)
        events.add_findings(self._checks.findings)
        if local is not None:
            for broker in local.ids:
                with suppress(OSError):
                    events.add_log(local.log_path(broker))
        try:
            events.write(path)
        except OSError as error:
            raise RunFailed(f"can't write {path}: {error.strerror}") from error

    # -- setup

    def _cluster(self, data: str) -> LocalCluster:
        """The cluster to start, on this machine or on several."""
        options = self._options
        if not options.machines:
            # The history has the events of the brokers' logs.
            settings = {} if options.history is None else {"tidelog.log.format": "json"}
            if options.transactions:
                settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "1000"
            return LocalCluster(BROKERS, data, settings, fault_switches=True, tls=options.tls)
        from tidelog.apps.verify.machines.machine_cluster import MachineCluster

        return MachineCluster(options.machines, options.brokers_per_machine, data)

    def _nemesis_of(self, local: LocalCluster) -> Nemesis:
        if not self._options.machines:
            return Nemesis(local, self._topic, self._ticks, self._hold)
        from tidelog.apps.verify.machines.machine_cluster import MachineCluster
        from tidelog.apps.verify.nemesis.machine_faults import MachineNemesis

        assert isinstance(local, MachineCluster)
        return MachineNemesis(local, self._topic, self._ticks, self._hold)

    def _open(self, local: LocalCluster, cluster: Cluster) -> None:
        """Create the topic and use the first group while a broker is down."""
        self._progress(0, "creating the topic while a broker is down")
        findings = self._checks.findings
        make_while_down(local, cluster, self._topic, lambda: self._create_topic(cluster), findings)
        nemesis = self._nemesis_of(local)
        if not nemesis.await_health(nemesis.health_s, "waiting for the killed broker"):
            findings.add(
                "not created",
                f"a replica is not in sync {nemesis.health_s:g} s after the restart of its broker",
            )

    def _create_topic(self, cluster: Cluster) -> None:
        self._create(cluster, self._topic)

    def _create(self, cluster: Cluster, topic: str) -> None:
        replicas = min(BROKERS, len(registered_brokers(cluster)))
        configs = {
            "min.insync.replicas": str(min(MIN_ISR, replicas)),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        admin.create_topic(cluster, topic, self._options.partitions, replicas, configs)

    def _delete_topic(self, cluster: Cluster) -> None:
        with suppress(ClientError):
            admin.delete_topic(cluster, self._topic, missing_ok=True)

    def _task(self, role: str, bootstrap: str, names: list[int], rate: float = 0.0) -> Task:
        options = self._options
        return Task(
            role,
            bootstrap,
            self._topic,
            options.partitions,
            self._tag.hex(),
            self._folder,
            self._began_ns,
            names,
            rate,
            options.acks,
            options.idempotence,
            options.seed,
            security=self._security,
        )

    def _start_workers(self, bootstrap: str) -> None:
        options, workers = self._options, self._workers
        names = list(range(1, options.producers + 1))
        shares = {"own": names[1::2], "librdkafka": names[0::2]}
        if options.client != "both":
            shares = {options.client: names}
        for client, producers in shares.items():
            if producers:
                rate = options.rate * len(producers) / len(names)
                task = self._task(f"{client} producers", bootstrap, producers, rate)
                workers.producers.append(Worker(task))
        if options.client != "own":
            workers.readers.append(Worker(self._task("librdkafka consumer", bootstrap, [1])))
        workers.readers.append(Worker(self._task("own reader", bootstrap, [2])))

    # -- workload

    def _ticks(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 100_000

    def _work(self, bootstrap: str) -> float:
        """Write and read under faults; return how long the producers wrote."""
        self._start_workers(bootstrap)
        patience = time.monotonic() + FIRST_ACK_S
        while not self._workers.tally()["acked"]:
            self._hold(STEP_S, "waiting for the first acknowledged record")
            if time.monotonic() > patience:
                raise RunFailed(
                    f"no record was acknowledged within {FIRST_ACK_S:g} s;"
                    " look at the brokers' logs (--keep DIR)"
                )
        self._began = began = time.monotonic()
        if self._nemesis is not None:
            options = self._options
            for fault in make_plan(options.seed, options.seconds, options.kinds):
                done = time.monotonic() - began
                calm = max(fault.gap_s, fault.at_s - done)
                if done + calm + fault.duration_s <= options.seconds:
                    self._hold(calm, "no fault")
                    self._nemesis.inject(fault)
        self._hold(began + self._options.seconds - time.monotonic(), "no fault")
        for worker in self._workers.producers:
            worker.stop()
        for worker in self._workers.producers:
            worker.await_end()
        return time.monotonic() - began

    def _hold(self, seconds: float, what: str) -> None:
        """Wait, check that the workers are alive, and report progress."""
        until = time.monotonic() + seconds
        while True:
            self._workers.check()
            now = time.monotonic()
            acked = self._workers.tally()["acked"]
            at, before = self._last_acked
            if now - at >= 1.0:
                self._rate = (acked - before) / (now - at)
                self._last_acked = (now, acked)
            done = 0.0 if self._began is None else min(now - self._began, self._options.seconds)
            faults = len(self._nemesis.injected) if self._nemesis else 0
            self._progress(done, f"{self._rate:,.0f} acked/s, faults: {faults}, {what}")
            if now >= until:
                return
            time.sleep(min(STEP_S, until - now))

    # -- after the workload

    def _settle(self, nemesis: Nemesis) -> None:
        """Wait until every replica is in sync."""
        findings = self._checks.findings
        nemesis.restart_dead_brokers()
        if not nemesis.await_health(SETTLE_S, "waiting for all replicas"):
            findings.add(
                "never settled", f"replicas are out of sync {SETTLE_S:g} s after the last fault"
            )
        nemesis.restart_dead_brokers()
        for failure in nemesis.failures:
            findings.add("broker failed", failure)
        for number, fault in enumerate(nemesis.injected, 1):
            if fault.healthy is None:
                brokers = " and ".join(map(str, fault.brokers))
                self._troubles.append(
                    f"fault {number} ({fault.kind} of broker {brokers}): not all replicas in sync"
                    f" {nemesis.health_s:g} s after the fault ended"
                )

    def _end_readers(self, cluster: Cluster) -> None:
        self._progress(self._options.seconds, "consumers catch up")
        partitions = range(self._options.partitions)
        ends = [list_offset(cluster, self._topic, p).offset for p in partitions]
        for worker in self._workers.readers:
            worker.stop(ends)
        for worker in self._workers.readers:
            worker.await_end()

    def _history(self) -> History:
        sent: dict[int, list[int]] = {}
        for worker in self._workers.all:
            sent |= {int(name): counts for name, counts in worker.reported.get("sent", {}).items()}
            for text in worker.reported.get("fatal", []):
                self._checks.findings.add("fatal error", text)
            self._troubles += worker.reported.get("troubles", [])
        names = [(worker.task.role, worker.task.names[0]) for worker in self._workers.readers]
        return History(
            self._folder,
            sent,
            [f"consumer{name}" for role, name in names if role == "librdkafka consumer"],
            [f"reader{name}" for role, name in names if role == "own reader"],
        )

    def _report(self, seconds: float, faults: list[Injected]) -> Report:
        tally, checks = self._workers.tally(), self._checks
        figures = Figures(
            seconds,
            tally["acked"],
            tally["unknown"],
            tally["refused"],
            {"librdkafka": tally["read"], "own": tally["read raw"]},
            checks.records,
            checks.batches,
            checks.leader_changes,
            checks.replicas_compared,
        )
        findings, waits = checks.findings, checks.waits
        return Report(
            self._options,
            self._topic,
            figures,
            faults,
            waits,
            findings,
            self._troubles,
            None,
            tuple(checks.pauses),
            self._transactions(),
        )

    def _transactions(self) -> dict[str, int] | None:
        """Return the counts that only a run with transactions has."""
        return None
