"""Every way to damage the files of one replica, while its broker is stopped or runs.

Each way is a function of the partition's folder. `PARTITION_WAYS` damage that partition only; the
others damage files that the broker keeps for all its partitions.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.apps.verify.nemesis.ways.batch_ways import BATCH_WAYS, cut, flip
from tidelog.apps.verify.nemesis.ways.broker_ways import BROKER_WAYS
from tidelog.apps.verify.nemesis.ways.file_ways import FILE_WAYS, delete_log
from tidelog.apps.verify.nemesis.ways.places import OLDER, Way, segments
from tidelog.core.storage import layout
from tidelog.core.types import TopicPartition


def _in_closed_segment(folder: Path, change: Callable[[Path, str], None]) -> None:
    """Damage an older segment; do nothing while the log has only one."""
    if len(segments(folder)) > 1:
        change(folder, OLDER)


PARTITION_WAYS: dict[str, Way] = {**BATCH_WAYS, **FILE_WAYS}
"""Damage to one partition alone."""
WAYS: dict[str, Way] = {**PARTITION_WAYS, **BROKER_WAYS}
"""Damage while the broker is stopped, by its description."""
LIVE_WAYS: dict[str, Way] = {
    "a flipped bit in a closed segment": partial(_in_closed_segment, change=flip),
    "the tail of a closed segment cut": partial(_in_closed_segment, change=cut),
    "a closed segment deleted": partial(_in_closed_segment, change=delete_log),
}
"""Damage while the broker runs, by its description."""


def damage(log_dir: str, partition: TopicPartition, way: str) -> None:
    """Damage the files of one replica."""
    change = WAYS.get(way) or LIVE_WAYS[way]
    change(Path(log_dir, layout.partition_dir(partition)))
