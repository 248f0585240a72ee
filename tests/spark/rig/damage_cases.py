"""All ways to damage a log directory in tests of the audit."""

import damage_by_writers
import damage_ends
import damage_files
import damage_hard
import damage_lineage
import damage_segments
from damage_case import CASES

__all__ = ["CASES"]
PARTS = (damage_segments, damage_lineage, damage_files, damage_by_writers, damage_hard, damage_ends)
"""Each adds its cases as it is imported."""
