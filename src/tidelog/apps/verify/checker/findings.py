"""The anomalies of a run: the count of each kind, and the first few examples.

Invariant: a kind that the settings allow is counted and shown, but breaks no guarantee.
"""

from collections import Counter
from typing import NamedTuple

EXAMPLES_MAX = 5

KINDS = {
    "lost": "acknowledged, but not in the final log",
    "wrong offset": "acknowledged at one offset, but found at another",
    "refused, yet written": "rejected by the broker, but in the final log",
    "duplicated": "sent once, but in the final log twice",
    "reordered": "a producer's records are not in the order in which they were sent",
    "phantom": "in the final log, but never sent to this partition",
    "read, then gone": "read by a consumer, but the final log has no record at that offset",
    "changed after read": "a consumer read a record that differs from the final log at that offset",
    "read above HW": "a response has records above its own high watermark or last stable offset",
    "skipped": "in the final log, but a consumer did not receive it",
    "offsets backwards": "a log end or high watermark in a response was lower than before",
    "epochs backwards": "a batch has a lower leader epoch than the batch before it",
    "corrupt": "a batch does not match its checksum, or can't be decoded",
    "fatal error": "a client stopped because of a response that a broker must never send",
    "not created": "the topic or the first group could not be created while a broker was down",
    "broker failed": "a broker process exited unexpectedly, or did not stop when requested",
    "never settled": "a replica was not in sync again after the last fault",
    "replicas differ": "two brokers have different bytes below the high watermark",
}
"""All kinds of anomalies in the order of the report, with their meaning."""

TRANSACTION_KINDS = {
    "lost": "its transaction was committed, but the record is missing or aborted in the final log",
    "torn": "only a part of a transaction's records is visible to read-committed consumers",
    "G1a aborted read": "a record of an aborted transaction is visible to read-committed consumers",
    "G1b intermediate read": "a consumer read a record before its transaction began to commit",
    "G1c read cycle": "transactions that each read a record of the next one, in a circle",
    "zombie committed": "a producer could commit although a newer one had fenced it",
    "processed twice": "an input record has more than one committed output record",
    "not processed": "the group's offset is past an input record without a committed output record",
    "offset not committed": "an output record is committed, but not the offset of its input",
    "duplicated": KINDS["duplicated"],
    "reordered": "records are not in the order in which they were sent, or in that of the input",
    "phantom": KINDS["phantom"],
    "hanging": "a transaction never ended in a partition, and blocks read-committed consumers",
    "stuck": "a client or the processors made no progress for a minute without faults",
    "out-of-order read": "a consumer received a lower offset after a higher one",
    **{
        kind: KINDS[kind]
        for kind in (
            "skipped",
            "read, then gone",
            "changed after read",
            "read above HW",
            "offsets backwards",
            "epochs backwards",
            "corrupt",
            "fatal error",
            "not created",
            "broker failed",
            "never settled",
            "replicas differ",
        )
    },
    "G0 write cycle": "transactions whose records are interleaved; Kafka does not isolate writes",
    "mixed cycle": "such transactions that also read each other's records",
}
"""The kinds of anomalies of a run with transactions."""
MEANINGS = TRANSACTION_KINDS | KINDS
ALLOWED_WITH_TRANSACTIONS = frozenset({"G0 write cycle", "mixed cycle"})


class Guarantees(NamedTuple):
    """The guarantees of the producers' settings."""

    acks_all: bool = True
    idempotence: bool = True
    transactions: bool = False

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of anomalies that the checker looks for, with their meaning."""
        return TRANSACTION_KINDS if self.transactions else KINDS

    def allows(self) -> frozenset[str]:
        """Return the kinds of anomalies that these settings permit."""
        allowed = set(ALLOWED_WITH_TRANSACTIONS if self.transactions else ())
        if not self.idempotence:
            allowed |= {"duplicated", "reordered"}
        if not self.acks_all:
            allowed |= {"lost", "wrong offset"}
        return frozenset(allowed)


class Findings:
    """Counts and examples of anomalies by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str, times: int = 1) -> None:
        """Count an anomaly, and keep the example if there are few so far."""
        assert kind in MEANINGS, kind
        self.counts[kind] += times
        kept = self.examples.setdefault(kind, [])
        if len(kept) < EXAMPLES_MAX:
            kept.append(example)

    def merge(self, other: "Findings") -> None:
        """Add the counts and examples of other findings."""
        for kind, examples in other.examples.items():
            kept = self.examples.setdefault(kind, [])
            kept += examples[: EXAMPLES_MAX - len(kept)]
        self.counts += other.counts

    def broken(self, guarantees: Guarantees) -> dict[str, int]:
        """Return the count of each kind that breaks a guarantee."""
        allowed = guarantees.allows()
        return {
            kind: self.counts[kind]
            for kind in guarantees.kinds
            if self.counts[kind] and kind not in allowed
        }
