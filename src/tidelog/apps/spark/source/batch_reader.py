"""`spark.read.format("tidelog")`: topics from here to there, as they are when it is first used.

Offsets are resolved once, on the driver, when Spark plans the DataFrame's first action; Spark
keeps the plan, so that every action on one DataFrame reads the same offsets. Always true: the
rows are those of the ranges planned, or an error says why not, or the loss is told.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from tidelog.apps.spark.columns import check_schema
from tidelog.apps.spark.source.loss.judging import Place
from tidelog.apps.spark.source.loss.policy import LostRange, refuse_loss, tell_loss
from tidelog.apps.spark.source.options.source_options import (
    SourceOptions,
    batch_options,
    include_headers,
)
from tidelog.apps.spark.source.planning import split_ranges
from tidelog.apps.spark.source.range_errors import RangeToRead
from tidelog.apps.spark.source.resolving import ask_bounds, resolve
from tidelog.apps.spark.source.survey import Survey
from tidelog.apps.spark.source.task import PlannedRanges, read_planned


class TidelogBatchReader(DataSourceReader):
    """Made on the driver, pickled for the executors."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self.options: SourceOptions = batch_options(options)
        self.schema = check_schema(schema, include_headers(options))

    def partitions(self) -> list[PlannedRanges]:
        """Ranges cut into tasks."""
        options = self.options
        survey = Survey(options.client, options.subscription, options.isolation)
        try:
            landscape = survey.look_for_all()
            bounds = ask_bounds(survey, landscape.partitions)
            starts = resolve(survey, options.starting, bounds)
            ends = resolve(survey, options.ending, bounds)
        finally:
            survey.close()
        lost = _wanted(starts.lost, ends.lost)
        refuse_loss(lost, options.on_data_loss)
        tell_loss(lost, options.data_loss_path, f"batch {starts}")
        ranges = [
            RangeToRead(
                key.topic,
                landscape.ids[key.topic],
                key.partition,
                start.offset,
                _end(ends.places[key], start),
                ends.places[key].epoch,
            )
            for key, start in sorted(starts.places.items())
        ]
        cut = split_ranges(ranges, options.splitting, os.cpu_count() or 1)
        return [PlannedRanges((each,)) for each in cut]

    def read(self, partition: Any) -> Iterator[Any]:
        """On an executor."""
        if not isinstance(partition, PlannedRanges):
            return iter(())  # Spark makes up a partition where there is none.
        return read_planned(self.options, self.schema, partition, stream=False)


def _wanted(lost: Sequence[LostRange], lost_ends: Sequence[LostRange]) -> list[LostRange]:
    """Of what is deleted in front of a log, what was asked for: the end may be deleted too."""
    ends = {(each.topic, each.partition): each.start for each in lost_ends}
    cut = [each._replace(end=ends.get((each.topic, each.partition), each.end)) for each in lost]
    return [each for each in cut if each.offsets > 0]


def _end(end: Place, start: Place) -> int:
    return max(end.offset, start.offset)
