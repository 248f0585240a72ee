"""Compare replicas in Spark: first the digests of windows, then the batches where these differ.

Each replica is compared within its own bounds: from the first offset of its files up to the
offset where its epochs stop matching the reference. Of adjacent windows that differ, only the
first and the last are read batch by batch. This gives the exact range and limits the work.
"""

import json
from collections.abc import Iterator
from typing import Any

from tidelog.apps.audit.checks.divergence import Compared, Copy, Differing
from tidelog.apps.audit.scan.walk import WINDOW
from tidelog.apps.audit.source.log_format import FORMAT

RANGES_MAX = 32
"""The maximum number of window ranges to read batch by batch, per partition."""
ROWS_MAX = 400
"""The maximum number of differing batches to report, per partition."""


def differences(
    spark: Any, scan: Any, options: dict[str, str], compared: list[Compared]
) -> Iterator[tuple[Compared, list[Differing]]]:
    """Yield each partition whose replicas differ, with the differing batches in offset order."""
    if not compared:
        return
    windows = _differing_windows(spark, scan, compared)
    if not windows:
        return
    found: dict[int, list[Differing]] = {}
    for row in _differing_batches(spark, options, compared, windows):
        copies = {each.replica: Copy(*each[1:]) for each in row.copies}
        found.setdefault(row.number, []).append(Differing(row.base_offset, copies))
    for number, rows in found.items():
        yield compared[number], sorted(rows)


def _bounds_table(spark: Any, compared: list[Compared], only: set[int] | None = None) -> Any:
    rows = [
        (number, replica, each.topic, each.partition, start, until, [*map(list, each.bounds())])
        for number, each in enumerate(compared)
        if only is None or number in only
        for replica, start, until in each.bounds()
    ]
    schema = (
        "number int, replica string, topic string, partition int, start long, until long,"
        " sides array<struct<replica: string, start: long, until: long>>"
    )
    from pyspark.sql import functions as F

    return F.broadcast(spark.createDataFrame(rows, schema))


def _differing_windows(
    spark: Any, scan: Any, compared: list[Compared]
) -> list[tuple[int, int, int]]:
    """Return ranges of adjacent differing windows: partition number, first and last window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    bounds = _bounds_table(spark, compared)
    windows = scan.where("kind = 'stretch'").select(
        "replica", "topic", "partition", F.inline("windows")
    )
    own = windows.join(bounds, ["replica", "topic", "partition"]).where(
        f"window * {WINDOW} < until and (window + 1) * {WINDOW} > start"
    )
    each = own.groupBy("number", "window", "replica").agg(
        F.expr("bit_xor(digest)").alias("digest"),
        F.sum("batches").alias("batches"),
        F.first("sides").alias("sides"),
    )
    side_by_side = each.groupBy("number", "window").agg(
        F.countDistinct("digest", "batches").alias("kinds"),
        F.count("replica").alias("present"),
        F.first("sides").alias("sides"),
    )
    concerned = (
        f"size(filter(sides, s -> s.start < (window + 1) * {WINDOW}"
        f" and s.until > window * {WINDOW} and s.until > s.start))"
    )
    differing = side_by_side.where(f"kinds > 1 or present < {concerned}").select("number", "window")
    order = Window.partitionBy("number").orderBy("window")
    ranges = (
        differing.withColumn("island", F.col("window") - F.row_number().over(order))
        .groupBy("number", "island")
        .agg(F.min("window").alias("first"), F.max("window").alias("last"))
        .withColumn("rank", F.row_number().over(Window.partitionBy("number").orderBy("first")))
        .where(f"rank <= {RANGES_MAX}")
    )
    return [(row.number, row.first, row.last) for row in ranges.collect()]


def _differing_batches(
    spark: Any,
    options: dict[str, str],
    compared: list[Compared],
    windows: list[tuple[int, int, int]],
) -> list[Any]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    wanted: dict[str, set[int]] = {}
    for number, first, last in windows:
        each = compared[number]
        wanted.setdefault(f"{each.topic}-{each.partition}", set()).update((first, last))
    windows_by_folder = {folder: sorted(each) for folder, each in wanted.items()}
    read = spark.read.format(FORMAT).options(
        **options | {"level": "batch", "onDamage": "skip", "windows": json.dumps(windows_by_folder)}
    )
    batches = read.load().select(
        "replica",
        "topic",
        "partition",
        "base_offset",
        F.struct(
            "replica",
            "last_offset",
            "leader_epoch",
            "crc",
            "segment",
            "position",
            "count",
            "attributes",
        ).alias("copy"),
    )
    bounds = _bounds_table(spark, compared, {number for number, _, _ in windows})
    inside = batches.join(bounds, ["replica", "topic", "partition"]).where(
        "copy.last_offset < until and base_offset >= start"
    )
    grouped = inside.groupBy("number", "base_offset").agg(
        F.collect_list("copy").alias("copies"),
        F.countDistinct("copy.last_offset", "copy.leader_epoch", "copy.crc").alias("kinds"),
        F.max("copy.last_offset").alias("last_offset"),
        F.first("sides").alias("sides"),
    )
    concerned = "size(filter(sides, s -> s.start <= base_offset and s.until > last_offset))"
    differing = grouped.where(f"kinds > 1 or size(copies) < {concerned}")
    order = Window.partitionBy("number").orderBy("base_offset")
    ranked = differing.withColumn("rank", F.row_number().over(order)).where(f"rank <= {ROWS_MAX}")
    rows: list[Any] = ranked.select("number", "base_offset", "copies").collect()
    return rows
