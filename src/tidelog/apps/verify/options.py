"""What a run of `tidelog verify` is asked to do."""

from typing import NamedTuple

from tidelog.apps.verify.checker.findings import Promise
from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS

BROKERS = 3
MIN_ISR = 2


class Options(NamedTuple):
    """One run."""

    seed: int
    seconds: float = 120.0
    bootstrap: str | None = None
    """None: a cluster of our own, in a temporary folder."""
    kinds: tuple[str, ...] = DEFAULT_KINDS
    producers: int = 4
    rate: int = 5000
    acks: str = "all"
    idempotence: bool = True
    partitions: int = 6
    client: str = "both"
    keep: str | None = None
    """Where to leave the journals and, of our own cluster, the logs."""

    @property
    def promise(self) -> Promise:
        """What these settings promise."""
        return Promise(acks_all=self.acks == "all", idempotence=self.idempotence)
