"""Which records of a log a query returns."""

from typing import NamedTuple

from tidelog.apps.audit.source.planning import Unit

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
OFFSET_MAX = 2**63 - 1


class RecordView(NamedTuple):
    """The options of a query that select records."""

    isolation: str = ""
    include_deleted: bool = False
    skip_damage: bool = False

    def bounds(self, unit: Unit) -> tuple[int, int]:
        """Return the first offset to return, and the offset to stop before."""
        end = OFFSET_MAX
        if self.isolation and unit.high_watermark is not None:
            end = unit.high_watermark
        return (0 if self.include_deleted else unit.log_start), end
