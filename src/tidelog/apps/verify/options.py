"""The options of a `tidelog verify` run."""

from typing import NamedTuple

from tidelog.apps.verify.checker.findings import Promise
from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS

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

    @property
    def promise(self) -> Promise:
        """The guarantees of these settings."""
        return Promise(acks_all=self.acks == "all", idempotence=self.idempotence)
