"""The audit: one scan of all files on Spark, its results judged on the driver.

Batches never come to the driver. What comes is a summary of each stretch of a segment, and
rows for what is wrong. Replicas are compared in Spark by digests of windows of offsets; only
windows that differ are looked into, batch by batch.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.apps.audit.checks.checkpoint_offsets import check_log_dir, check_promises
from tidelog.apps.audit.checks.divergence import tell_differences
from tidelog.apps.audit.checks.epoch_lineage import check_epochs
from tidelog.apps.audit.checks.files_beside import check_files
from tidelog.apps.audit.checks.lineage_fork import Side, agree, tell_ends
from tidelog.apps.audit.checks.offset_chain import check_offsets
from tidelog.apps.audit.checks.replica_log import ReplicaLog, SegmentSummary, segments_of
from tidelog.apps.audit.comparison import Compared, differences
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.folders.partition_folder import FolderFacts
from tidelog.apps.audit.report.findings import Finding, in_order
from tidelog.apps.audit.report.report import Report, partition_row
from tidelog.apps.audit.scan.summary import StretchSummary
from tidelog.apps.audit.source.data_source import FORMAT
from tidelog.apps.audit.source.scan_rows import FOLDER, LOG_DIR

Tell = Callable[[str], None]
Key = tuple[str, str, int]
"""Cluster id, topic, partition: replicas of one partition share it."""


def audit(
    spark: Any, paths: Sequence[str], deep: bool = False, tell: Tell = lambda _: None
) -> Report:
    """Audit everything below the paths."""
    from tidelog.apps.audit.source.data_source import LogDataSource

    began = time.monotonic()
    spark.dataSource.register(LogDataSource)
    tell("reading every file")
    options = {"level": "scan", "paths": json.dumps([os.path.abspath(path) for path in paths])}
    if deep:
        options["deep"] = "true"
    scan = spark.read.format(FORMAT).options(**options).load().persist()
    try:
        return _audit(spark, scan, options, tell, began)
    finally:
        scan.unpersist()


def _audit(spark: Any, scan: Any, options: dict[str, str], tell: Tell, began: float) -> Report:
    rows = scan.drop("windows", "producers").collect()
    findings: list[Finding] = []
    log_dirs = {
        row.log_dir: LogDirFacts.from_json(row.summary) for row in rows if row.kind == LOG_DIR
    }
    for facts in log_dirs.values():
        findings += check_log_dir(facts)
    partitions = _partitions(rows, log_dirs)
    tell("comparing replicas")
    compared: list[Compared] = []
    sides: dict[Key, list[Side]] = {}
    for key, logs in partitions.items():
        found = _judge_partition(logs)
        sides[key] = found
        if len(found) > 1:
            agreement = agree(found)
            tell_ends(found, agreement)
            compared.append(Compared(key, found, agreement))
    for each, differing in differences(spark, scan, options, compared):
        tell_differences(each, differing)
    findings += [
        finding for logs in partitions.values() for log in logs for finding in log.findings
    ]
    table = [partition_row(key, found) for key, found in sorted(sides.items())]
    return Report(in_order(findings), table, time.monotonic() - began)


def _partitions(rows: list[Any], log_dirs: dict[str, LogDirFacts]) -> dict[Key, list[ReplicaLog]]:
    folders: dict[tuple[str, str, int], FolderFacts] = {}
    stretches: dict[tuple[str, str, int], list[tuple[str, StretchSummary]]] = defaultdict(list)
    for row in rows:
        if row.kind == LOG_DIR:
            continue
        place = (row.log_dir, row.topic, row.partition)
        if row.kind == FOLDER:
            folders[place] = FolderFacts.from_json(row.summary)
        else:
            stretches[place].append((row.segment, StretchSummary.from_json(row.summary)))
    partitions: dict[Key, list[ReplicaLog]] = defaultdict(list)
    for (path, topic, partition), folder in folders.items():
        facts = log_dirs[path]
        segments: list[SegmentSummary] = segments_of(stretches[path, topic, partition])
        log = ReplicaLog(facts, topic, partition, folder, segments)
        partitions[facts.cluster_id, topic, partition].append(log)
    return partitions


def _judge_partition(logs: list[ReplicaLog]) -> list[Side]:
    compacted = any(log.is_compacted for log in logs)
    cleaned_upto = max(log.cleaned_upto for log in logs)
    for log in logs:
        check_offsets(log, compacted, cleaned_upto)
    sides = []
    for log in logs:
        longest = max((other.log_end for other in logs if other is not log), default=0)
        check_promises(log, longest)
        sides.append(Side(log, check_epochs(log)))
        check_files(log)
    return sides
