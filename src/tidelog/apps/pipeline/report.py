"""What a pipeline tells: a line for each micro-batch while it runs, and sums at the end.

Always true: `rows_in` of a batch is `rows_out` and `rejected` together for land and backfill; for
an aggregate, rows go in and windows come out.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Progress:
    """One micro-batch."""

    batch: int
    rows_in: int
    rows_out: int
    late: int = 0
    rejected: int = 0
    seconds: float = 0.0
    lag: int | None = None
    """Offsets that wait in the topics; None: not known."""

    @property
    def rows_per_s(self) -> float:
        """Rows in for each second of the batch."""
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0


Tell: TypeAlias = Callable[[Progress], None]


@dataclass
class Report:
    """A run: what it did, and what stands there now."""

    name: str
    kind: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    rejected: int = 0
    lost: int = 0
    """Offsets that the source reported as lost, where `onDataLoss` lets it go on."""
    merged: int = 0
    """Small files that were made part of larger ones."""
    notes: list[str] = field(default_factory=list)
    """What the user should know, a line each."""
    seconds: float = 0.0
    stopped: bool = False
    """Ended by a signal, not because all was done."""
    totals: dict[str, int] = field(default_factory=dict)
    """The same since the pipeline's very first run."""

    def add(self, progress: Progress) -> None:
        """Count a micro-batch."""
        self.batches += 1
        self.rows_in += progress.rows_in
        self.rows_out += progress.rows_out
        self.late += progress.late
        self.rejected += progress.rejected

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}
