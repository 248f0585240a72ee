"""`spark.read.format("tidelog")`: the batch reader.

Offsets are resolved once, on the driver, when Spark plans the DataFrame's first action. Spark keeps
the plan, so every action on one DataFrame reads the same offsets. Invariant: a read returns all
rows of the planned ranges, or fails, or reports the lost offsets.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from tidelog.apps.spark.columns import check_schema
from tidelog.apps.spark.source.data_loss import LostRange, fail_on_loss, report_loss
from tidelog.apps.spark.source.partition_lookup import PartitionLookup
from tidelog.apps.spark.source.planning import find_bounds, resolve, split_ranges
from tidelog.apps.spark.source.range_reader import RangeToRead
from tidelog.apps.spark.source.source_options import (
    SourceOptions,
    batch_options,
    include_headers,
)
from tidelog.apps.spark.source.task import PlannedRanges, read_planned


class TidelogBatchReader(DataSourceReader):
    """Plans a batch read on the driver. Each task has a copy and reads its ranges."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self.options: SourceOptions = batch_options(options)
        self.schema = check_schema(schema, include_headers(options))

    def partitions(self) -> list[PlannedRanges]:
        """Return the ranges of the read, split into tasks."""
        options = self.options
        lookup = PartitionLookup(options.client, options.subscription, options.isolation)
        try:
            subscribed = lookup.find_all()
            bounds = find_bounds(lookup, subscribed.partitions)
            starts = resolve(lookup, options.starting, bounds)
            ends = resolve(lookup, options.ending, bounds)
        finally:
            lookup.close()
        lost = _requested(starts.lost, ends.lost)
        fail_on_loss(lost, options.on_data_loss)
        report_loss(lost, options.data_loss_path, f"batch {starts}")
        ranges = [
            RangeToRead(
                key.topic,
                subscribed.ids[key.topic],
                key.partition,
                start.offset,
                max(ends.places[key].offset, start.offset),
                ends.places[key].epoch,
            )
            for key, start in sorted(starts.places.items())
        ]
        pieces = split_ranges(ranges, options.splitting, os.cpu_count() or 1)
        return [PlannedRanges((each,)) for each in pieces]

    def read(self, partition: Any) -> Iterator[Any]:
        """Read the ranges of a task, on an executor."""
        if not isinstance(partition, PlannedRanges):
            return iter(())  # Spark passes its own partition object if the list is empty
        return read_planned(self.options, self.schema, partition, stream=False)


def _requested(lost: Sequence[LostRange], lost_ends: Sequence[LostRange]) -> list[LostRange]:
    """Return the lost ranges up to the requested ends, which may be deleted too."""
    ends = {(each.topic, each.partition): each.start for each in lost_ends}
    shortened = [
        each._replace(end=ends.get((each.topic, each.partition), each.end)) for each in lost
    ]
    return [each for each in shortened if each.offsets > 0]
