"""What a pipeline reports: progress after each micro-batch, and totals at the end.

Invariant: for land and backfill, `rows_in` of a batch equals `rows_out` plus `rejected`. For an
aggregate, `rows_in` counts records and `rows_out` counts windows.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Progress:
    """The counts of one micro-batch."""

    batch: int
    rows_in: int
    rows_out: int
    late: int = 0
    rejected: int = 0
    seconds: float = 0.0
    lag: int | None = None
    """Offsets in the topics that are not read yet; None if unknown."""

    @property
    def rows_per_s(self) -> float:
        """Input rows per second of the batch."""
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0


OnProgress: TypeAlias = Callable[[Progress], None]
"""A function that is called after each micro-batch."""


@dataclass
class Report:
    """The result of one run, with the totals of all runs."""

    name: str
    kind: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    rejected: int = 0
    lost: int = 0
    """Offsets that the source reported as lost, if `onDataLoss` lets the query continue."""
    merged: int = 0
    """Number of small files that were merged into larger ones."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user, one line each."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether a stop request ended the run before all rows were processed."""
    totals: dict[str, int] = field(default_factory=dict)
    """The same counts, summed since the first run of the pipeline."""

    def add(self, progress: Progress) -> None:
        """Add the counts of a micro-batch."""
        self.batches += 1
        self.rows_in += progress.rows_in
        self.rows_out += progress.rows_out
        self.late += progress.late
        self.rejected += progress.rejected

    def as_data(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}
