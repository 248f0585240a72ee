"""The options of a run, and its result: figures, faults and findings."""

from typing import Any, NamedTuple

from tidelog.apps.verify.checker.findings import Findings, Guarantees
from tidelog.apps.verify.journals import TICKS_A_SECOND
from tidelog.apps.verify.nemesis.failover import Failover, Injected, Waits, summarize
from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS
from tidelog.shell.client.security import NO_SECURITY, SecurityTexts

BROKERS = 3
MIN_ISR = 2


class Options(NamedTuple):
    """The options of one run."""

    seed: int
    seconds: float = 120.0
    bootstrap: str | None = None
    """The cluster to test; None starts a local cluster in a temporary folder."""
    kinds: tuple[str, ...] = DEFAULT_KINDS
    producers: int = 4
    rate: int = 5000
    acks: str = "all"
    idempotence: bool = True
    partitions: int = 6
    client: str = "both"
    keep: str | None = None
    """The folder to keep the journals in, and the logs of a local cluster; None keeps none."""
    machines: int = 0
    """Start the cluster on this many machines, with etcd; 0: on this one."""
    brokers_per_machine: int = 1
    history: str | None = None
    """Write what happened to this file, as history events."""
    transactions: bool = False
    """Run transactional clients instead of plain producers."""
    tls: bool = False
    """Start a local cluster whose clients use TLS."""
    security: SecurityTexts = NO_SECURITY
    """The security settings of clients of the cluster of `bootstrap`."""

    @property
    def guarantees(self) -> Guarantees:
        """The guarantees of these settings."""
        return Guarantees(
            acks_all=self.acks == "all",
            idempotence=self.idempotence,
            transactions=self.transactions,
        )


class Figures(NamedTuple):
    """The counts of a run."""

    seconds: float
    """How long the producers wrote."""
    acked: int
    unknown: int
    refused: int
    read: dict[str, int]
    """Number of records read, by client."""
    in_log: int
    batches: int
    leader_epochs: int
    """Number of leader changes in the final logs, over all partitions."""
    replicas_compared: int

    @property
    def acked_a_second(self) -> float:
        return self.acked / self.seconds if self.seconds else 0.0


class Report(NamedTuple):
    """The full result of a run."""

    options: Options
    topic: str
    figures: Figures
    faults: list[Injected]
    waits: list[Failover]
    findings: Findings
    troubles: list[str]
    """Problems that break no guarantee: errors of clients, slow recoveries."""
    kept: str | None
    """The folder with the journals and logs; None if it was deleted."""
    pauses: tuple[int, ...] = ()
    """The longest pause of writes by fault, of all partitions, in ticks."""
    transactions: dict[str, int] | None = None
    """Counts of a run with transactions, by their names in the report."""

    @property
    def guarantees(self) -> Guarantees:
        return self.options.guarantees

    @property
    def holds(self) -> bool:
        return not self.findings.broken(self.guarantees)

    @property
    def kills(self) -> int:
        """Number of broker processes killed with -9."""
        return sum(len(f.brokers) for f in self.faults if f.kind.startswith("kill"))

    def waits_after(self, fault: int) -> dict[int, float | None]:
        """Return, by partition, how long writes stopped after this fault."""
        return {wait.partition: wait.seconds for wait in self.waits if wait.fault == fault}

    def pause_of(self, fault: int) -> float | None:
        """Return how long writes to any partition paused at most during this fault."""
        return self.pauses[fault] / TICKS_A_SECOND if self.pauses else None

    def pauses_by_kind(self) -> dict[str, Waits]:
        """Summarize, by kind of fault, the longest pause of writes that each fault caused."""
        by_kind: dict[str, list[float | None]] = {}
        for number, fault in enumerate(self.faults):
            by_kind.setdefault(fault.kind, []).append(self.pause_of(number))
        return {kind: summarize(pauses) for kind, pauses in sorted(by_kind.items())}

    def waits_by_kind(self) -> dict[str, Waits]:
        """Summarize, by kind of fault, how long writes stopped."""
        by_kind: dict[str, list[float | None]] = {}
        for wait in self.waits:
            by_kind.setdefault(self.faults[wait.fault].kind, []).append(wait.seconds)
        return {kind: summarize(waits) for kind, waits in sorted(by_kind.items())}

    def as_data(self) -> dict[str, Any]:
        """Return the report as data for `--format json`."""
        figures, options = self.figures, self.options
        allowed = self.guarantees.allows()
        return {
            "seed": options.seed,
            "bootstrap": options.bootstrap,
            "nemesis": list(options.kinds),
            "producers": options.producers,
            "rate": options.rate,
            "acks": options.acks,
            "idempotence": options.idempotence,
            "partitions": options.partitions,
            "client": options.client,
            "tls": options.tls,
            "machines": options.machines,
            "brokers_per_machine": options.brokers_per_machine,
            "transactions": self.transactions,
            "topic": self.topic,
            **figures._asdict(),
            "seconds": options.seconds,
            "wrote_seconds": round(figures.seconds, 2),
            "acked_a_second": round(figures.acked_a_second),
            "kills": self.kills,
            "faults": [
                {
                    **_fault(fault),
                    "failover_s": self.waits_after(number),
                    "longest_pause_s": self.pause_of(number),
                }
                for number, fault in enumerate(self.faults)
            ],
            "failover": {kind: _waits(waits) for kind, waits in self.waits_by_kind().items()},
            "pauses": {
                kind: {
                    "faults": pauses.waited,
                    "median_s": pauses.median_s,
                    "max_s": pauses.longest_s,
                }
                for kind, pauses in self.pauses_by_kind().items()
            },
            "anomalies": {
                kind: {
                    "count": self.findings.counts[kind],
                    "allowed": kind in allowed,
                    "examples": self.findings.examples.get(kind, []),
                }
                for kind in self.guarantees.kinds
            },
            "troubles": self.troubles,
            "kept": self.kept,
        }


def _fault(fault: Injected) -> dict[str, Any]:
    seconds = {
        "begin_s": fault.begin / TICKS_A_SECOND,
        "end_s": fault.end / TICKS_A_SECOND,
        "healthy_s": None if fault.healthy is None else fault.healthy / TICKS_A_SECOND,
    }
    return {
        "kind": fault.kind,
        "role": fault.role,
        "brokers": list(fault.brokers),
        "controller": fault.controller,
        "led": list(fault.led),
        **seconds,
        "note": fault.note,
    }


def _waits(waits: Waits) -> dict[str, Any]:
    return {
        "partitions": waits.waited,
        "median_s": waits.median_s,
        "max_s": waits.longest_s,
        "never": waits.never,
    }
