"""The anomalies of a run: the count of each kind, and the first few examples.

Invariant: a kind that the settings allow is counted and shown, but breaks no guarantee.
"""

from collections import Counter
from typing import NamedTuple

EXAMPLES_MAX = 5

KINDS = {
    "lost": "acknowledged, and not in the final log",
    "wrong offset": "acknowledged at one offset, found at another",
    "refused, yet written": "the client was told that it is not written",
    "duplicated": "one send, twice in the log",
    "reordered": "a producer's records in another order than sent",
    "phantom": "in the log, but never sent to this partition",
    "read, then gone": "a consumer got it, and the final log has nothing there",
    "changed after read": "an offset gave something else later, or elsewhere",
    "read above HW": "an answer went beyond its own high watermark or last stable offset",
    "skipped": "a consumer passed over records that the final log has",
    "offsets backwards": "an end that clients were shown went back",
    "epochs backwards": "a leader epoch smaller than the one before it in the log",
    "corrupt": "a batch whose checksum does not fit, or that does not open",
    "fatal error": "a client stopped for good: what the broker told it can't be",
    "not created": "the topic, or the first group, could not be created while a broker was down",
    "broker failed": "its process ended by itself, or did not stop when it was told to",
    "never settled": "after the last fault, some replica did not come back in sync",
    "replicas differ": "two brokers keep other bytes below the high watermark",
}
"""All kinds of anomalies in the order of the report, with their meaning."""


class Promise(NamedTuple):
    """The guarantees of the producers' settings."""

    acks_all: bool = True
    idempotence: bool = True

    def allows(self) -> frozenset[str]:
        """Return the kinds of anomalies that these settings permit."""
        allowed = set()
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
        assert kind in KINDS, kind
        self.counts[kind] += times
        told = self.examples.setdefault(kind, [])
        if len(told) < EXAMPLES_MAX:
            told.append(example)

    def merge(self, other: "Findings") -> None:
        """Add the counts and examples of other findings."""
        for kind, examples in other.examples.items():
            told = self.examples.setdefault(kind, [])
            told += examples[: EXAMPLES_MAX - len(told)]
        self.counts += other.counts

    def broken(self, promise: Promise) -> dict[str, int]:
        """Return the count of each kind that breaks a guarantee."""
        allowed = promise.allows()
        return {
            kind: self.counts[kind] for kind in KINDS if self.counts[kind] and kind not in allowed
        }
