"""Proof of death: how brokers learn at once, without a time-out, that another broker has ended.

Two protocols beside the metadata store:

- `ProofOfDeath` decides about one process. Each broker stores a `LifeSign` with its session; the
  others can check it. On one machine the sign is a lock file (`log_dir_lock.LockProof`): the
  kernel frees the lock when the process ends. A broker on another machine cannot be checked.
- `DeathProbe` ends the sessions of all brokers that are proved dead, so that their keys are
  deleted and the controller elects other leaders.

Invariant: a proof is never wrong. A death that cannot be proved is detected by the session's
time-out.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.core.controller.metadata.metadata_store import Revision, Unavailable


class LifeSign(NamedTuple):
    """Where other processes can check that a broker is alive."""

    place: str
    """The path of a lock file; empty: this broker's death cannot be proved."""
    identity: str
    """Distinguishes the sign from a later one at the same place."""


NO_LIFE_SIGN = LifeSign("", "")


class ProofOfDeath(Protocol):
    """The proof about single processes. Used by the store's thread only."""

    def own(self) -> LifeSign:
        """The sign of this broker."""
        ...

    def is_dead(self, sign: LifeSign) -> bool:
        """Whether the process with this sign has certainly ended. False proves nothing."""
        ...


Probed: TypeAlias = Callable[[Revision | Unavailable], None]


class DeathProbe(Protocol):
    """Ends sessions on proof. Like the store's client: no call blocks, each is answered once."""

    def probe_deaths(self, answered: Probed | None = None) -> None:
        """End the sessions of brokers that are proved dead; the answer is the store's revision."""
        ...
