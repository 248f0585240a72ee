"""What is compared between replicas, and what a difference is."""

from typing import NamedTuple

from tidelog.apps.audit.checks.lineage_fork import Agreement, Side


class Bounds(NamedTuple):
    """Within which offsets a replica is compared."""

    replica: str
    start: int
    until: int


class Compared(NamedTuple):
    """A partition with several replicas."""

    topic: str
    partition: int
    sides: list[Side]
    agreement: Agreement

    def bounds(self) -> list[Bounds]:
        """From where a replica's files begin up to where its epochs let it agree."""
        return [
            Bounds(
                side.log.replica,
                side.log.segments[0].base_offset if side.log.segments else 0,
                self.agreement.until[side.log.replica],
            )
            for side in self.sides
        ]

    def is_the_same(self) -> bool:
        """Whether the replicas are known to be equal, batch for batch."""
        whole = {
            (side.log.digest, side.log.batches, side.log.log_end, bounds.start, bounds.until)
            for side, bounds in zip(self.sides, self.bounds(), strict=True)
        }
        return len(whole) == 1


class Copy(NamedTuple):
    """A replica's batch."""

    last_offset: int
    leader_epoch: int
    crc: int
    segment: str
    position: int
    records: int = 0
    attributes: int = 0

    @property
    def identity(self) -> tuple[int, int, int]:
        return self[:3]


class Differing(NamedTuple):
    """An offset at which replicas have not the same batch."""

    base_offset: int
    copies: dict[str, Copy]
