"""The verification of a producer's transaction before its first batch is appended (KIP-890).

The leader asks the transaction coordinator whether the partition is in the transaction. Between
the coordinator's answer and the append, a marker may end the transaction: an append after it would
begin a transaction that no marker ends. So the leader keeps one `Verification` for each producer
that it asks for. An append or a marker of that producer removes it, and a batch may begin a
transaction only while the verification that allowed it is still there. Before each question to the
coordinator the verification is renewed: a producer of transaction version 2 may send the first
batch of a transaction before the marker of its previous one arrives.
"""

from typing import TypeAlias

from tidelog.core.slotted import slotted


@slotted(eq=False)
class Verification:
    """One producer whose transaction the coordinator was asked for."""

    epoch: int
    lowest_sequence: int
    """The lowest sequence number of the batches that wait or failed. A later batch may not be
    appended before this one: the retry of this one would then be out of order for ever."""
    adds: bool
    """Whether the producer uses transaction version 2, where producers start at sequence 0."""
    began_ms: int
    """The wall clock time, for expiration."""

    def note(self, epoch: int, sequence: int) -> None:
        """Note one more batch that waits."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def blocks(self, sequence: int, *, known: bool) -> bool:
        """Whether a batch is out of order. `known`: the log has earlier batches of its producer."""
        return sequence > self.lowest_sequence or (self.adds and sequence != 0 and not known)


Verifications: TypeAlias = dict[int, Verification]
"""By producer id."""


def begin_verification(
    verifications: Verifications,
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    adds: bool,
    wall_ms: int,
) -> Verification:
    """Return the verification of a producer for one more batch."""
    found = verifications.get(producer_id)
    if found is None:
        found = verifications[producer_id] = Verification(epoch, sequence, adds, wall_ms)
    else:
        found.note(epoch, sequence)
    return found


def renew_verification(
    verifications: Verifications, producer_id: int, known: Verification
) -> Verification:
    """Put back a verification that a marker has removed; return the one that counts.

    For a leader that asks the coordinator again: a marker that arrived before this request has
    ended the producer's previous transaction, not the one that the response is about.
    """
    found = verifications.setdefault(producer_id, known)
    if found is not known:
        found.note(known.epoch, known.lowest_sequence)
    return found


def expire_verifications(verifications: Verifications, wall_ms: int, expiration_ms: int) -> None:
    """Remove the verifications of producers that never sent their batch again."""
    for producer_id, found in list(verifications.items()):
        if wall_ms - found.began_ms >= expiration_ms:
            del verifications[producer_id]
