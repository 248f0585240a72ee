"""The types for comparing replicas: bounds, copies of a batch, differences."""

from typing import NamedTuple

from tidelog.apps.audit.checks.lineage_fork import Agreement, Side


class Bounds(NamedTuple):
    """The offsets within which a replica is compared."""

    replica: str
    start: int
    until: int


class Compared(NamedTuple):
    """A partition with several replicas to compare."""

    topic: str
    partition: int
    sides: list[Side]
    agreement: Agreement

    def bounds(self) -> list[Bounds]:
        """Return, by replica, the range from its first segment to the end of its agreement."""
        return [
            Bounds(
                side.log.replica,
                side.log.segments[0].base_offset if side.log.segments else 0,
                self.agreement.until[side.log.replica],
            )
            for side in self.sides
        ]

    def is_the_same(self) -> bool:
        """Return whether digests show that all replicas have the same batches."""
        whole = {
            (side.log.digest, side.log.batches, side.log.log_end, bounds.start, bounds.until)
            for side, bounds in zip(self.sides, self.bounds(), strict=True)
        }
        return len(whole) == 1


class Copy(NamedTuple):
    """A replica's copy of a batch."""

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
    """An offset at which the replicas do not all have the same batch."""

    base_offset: int
    copies: dict[str, Copy]
