"""Turn the scan rows of the tasks into findings. This module reads no files and needs no Spark.

Two checks need all batches at once, so they are queries (`BatchQueries`): which batches differ
between replicas, and which producers have a sequence break between two stretches.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidelog.apps.audit.checks.checkpoint_offsets import check_log_dir, check_offset_files
from tidelog.apps.audit.checks.divergence import Compared, Differing, report_differences
from tidelog.apps.audit.checks.epoch_lineage import check_epochs
from tidelog.apps.audit.checks.files_beside import check_files
from tidelog.apps.audit.checks.lineage_fork import Side, agree, report_ends
from tidelog.apps.audit.checks.log_identity import (
    check_identity,
    check_nodes,
    report_foreign_logs,
    unite_clusters,
)
from tidelog.apps.audit.checks.offsets import check_offsets, lay_out
from tidelog.apps.audit.checks.replica_log import (
    ReplicaLog,
    SegmentSummary,
    cleaning_of,
    segments_of,
)
from tidelog.apps.audit.checks.sequences import check_sequences
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.folders.partition_folder import FolderFacts
from tidelog.apps.audit.report.findings import Finding, in_order, without_consequences
from tidelog.apps.audit.report.report import PartitionState, partition_row
from tidelog.apps.audit.scan.summary import SequenceBreak, StretchSummary

LOG_DIR, FOLDER, STRETCH = "log_dir", "folder", "stretch"


class Key(NamedTuple):
    """Identifies a partition; all its replicas have the same key."""

    cluster_id: str
    topic: str
    partition: int


class ScanRow(NamedTuple):
    """A row of level `scan`, without the columns that stay in Spark."""

    kind: str
    log_dir: str
    topic: str | None
    partition: int | None
    segment: str | None
    summary: str


class LogPlace(NamedTuple):
    """The folder of a partition in a log directory."""

    log_dir: str
    topic: str
    partition: int


class BatchQueries(Protocol):
    """The queries that need all batches of all replicas."""

    def differing(self, compared: list[Compared]) -> Iterable[tuple[Compared, list[Differing]]]: ...

    def sequence_breaks(self) -> Iterable[tuple[LogPlace, SequenceBreak]]: ...


Stopped = Callable[[str], bool]
"""Check, after the scan, whether a log directory still has the mark of a clean shutdown."""


class PassResult(NamedTuple):
    """The findings and partition states of one pass."""

    findings: list[Finding]
    partitions: list[PartitionState]
    unstable: frozenset[str] = frozenset()
    """Folders with damage that a broker may have caused by writing during the scan."""


PASSES_MAX = 4


def check_until_stable(run_pass: Callable[[frozenset[str]], PassResult]) -> PassResult:
    """Scan everything, then scan folders again whose damage a running broker may explain.

    Files that are read at different moments can disagree while a broker writes. Damage that a
    second pass finds unchanged is real; damage that changes between passes is dropped.
    `run_pass` receives the folders to scan; an empty set means all.
    """
    result = run_pass(frozenset())
    for _ in range(PASSES_MAX - 1):
        if not result.unstable:
            break
        again = run_pass(result.unstable)
        before = {_identity_of(each): each for each in result.findings if each.is_damage}
        fresh = _within(again.findings, result.unstable)
        now = {_identity_of(each) for each in fresh if each.is_damage}
        # Keep the text of the first pass: it scanned all partitions.
        fresh = [
            before.get(_identity_of(each), each)
            for each in fresh
            if not each.is_damage or _identity_of(each) in before
        ]
        rest = [each for each in result.findings if each not in _within([each], result.unstable)]
        rescanned = {f"{row.topic}-{row.partition}" for row in again.partitions} & result.unstable
        rows = [r for r in result.partitions if f"{r.topic}-{r.partition}" not in rescanned]
        rows += [r for r in again.partitions if f"{r.topic}-{r.partition}" in rescanned]
        unstable = again.unstable & result.unstable if now - before.keys() else frozenset()
        result = PassResult(in_order([*rest, *fresh]), sorted(rows), unstable)
    return result


def _identity_of(finding: Finding) -> tuple[object, ...]:
    """Return the fields that must match between passes; the end may change while a log grows."""
    return finding[:-2]


def _within(findings: list[Finding], folders: frozenset[str]) -> list[Finding]:
    return [each for each in findings if f"{each.topic}-{each.partition}" in folders]


def uncut_files(rows: Iterable[ScanRow]) -> list[str]:
    """Return segments that were split where no batch begins, because their index is wrong.

    They must be scanned again without a split.
    """
    by_path: dict[str, list[tuple[str, StretchSummary]]] = defaultdict(list)
    for row in rows:
        if row.kind == STRETCH and row.segment is not None:
            summary = StretchSummary.from_json(row.summary)
            by_path[row.segment].append((row.segment, summary))
    return [path for path, found in by_path.items() if not segments_of(found)[0].is_chained]


def check_rows(rows: Iterable[ScanRow], queries: BatchQueries, stopped: Stopped) -> PassResult:
    """Run all checks on the scan rows and return the findings."""
    rows = list(rows)
    log_dirs = {
        row.log_dir: LogDirFacts.from_json(row.summary) for row in rows if row.kind == LOG_DIR
    }
    logs = _logs(rows, log_dirs)
    findings = unite_clusters(log_dirs, list(logs.values()))
    findings += check_nodes(log_dirs, list(logs.values()))
    partitions: dict[Key, list[ReplicaLog]] = defaultdict(list)
    for log in logs.values():
        partitions[Key(log.log_dir.cluster_id, log.topic, log.partition)].append(log)
    for facts in log_dirs.values():
        elsewhere = {
            log.name: log.replica
            for log in logs.values()
            if log.log_dir.cluster_id == facts.cluster_id and log.log_dir.path != facts.path
        }
        findings += check_log_dir(facts, elsewhere)
    breaks: dict[int, list[tuple[ReplicaLog, SequenceBreak]]] = defaultdict(list)
    if any(log.producers_cross for log in logs.values()):
        for place, found in queries.sequence_breaks():
            log = logs[place]
            breaks[id(log)].append((log, found))
    compared: list[Compared] = []
    sides: dict[Key, list[Side]] = {}
    for key, replicas in partitions.items():
        sides[key] = _check_partition(replicas)
        between = [each for log in replicas for each in breaks[id(log)]]
        check_sequences(replicas, between)
        if len(replicas) > 1:
            agreement = agree(sides[key])
            compared.append(Compared(key.topic, key.partition, sides[key], agreement))
    topics: dict[tuple[str, str], list[ReplicaLog]] = defaultdict(list)
    for key, replicas in partitions.items():
        topics[key[:2]] += replicas
    for replicas in topics.values():
        check_identity(replicas)
    to_compare = [each for each in compared if not each.is_the_same()]
    for each, differing in queries.differing(to_compare) if to_compare else ():
        report_differences(each, differing)
    for each in compared:
        report_ends(each.sides, each.agreement)
    report_foreign_logs(list(logs.values()))
    for log in logs.values():
        findings += without_consequences(log.findings)
    table = [partition_row(key, found) for key, found in sorted(sides.items())]
    return PassResult(in_order(findings), table, _unstable(list(logs.values()), stopped))


def _unstable(logs: list[ReplicaLog], stopped: Stopped) -> frozenset[str]:
    """Return the folders to scan again.

    Topic ids are compared across partitions, so a wrong one adds all partitions of its topic.
    """
    damaged = [
        log
        for log in logs
        if any(finding.is_damage for finding in log.findings)
        and not (log.clean and stopped(log.log_dir.path))
    ]
    topics = {log.topic for log in damaged if any(each.kind == "topic-id" for each in log.findings)}
    return frozenset(log.name for log in logs if log in damaged or log.topic in topics)


def _logs(rows: list[ScanRow], log_dirs: dict[str, LogDirFacts]) -> dict[LogPlace, ReplicaLog]:
    folders: dict[LogPlace, FolderFacts] = {}
    stretches: dict[LogPlace, list[tuple[str, StretchSummary]]] = defaultdict(list)
    for row in rows:
        if row.topic is None or row.partition is None:
            continue
        place = LogPlace(row.log_dir, row.topic, row.partition)
        if row.kind == FOLDER:
            folders[place] = FolderFacts.from_json(row.summary)
        elif row.segment is not None:
            stretches[place].append((row.segment, StretchSummary.from_json(row.summary)))
    logs = {}
    for place, folder in folders.items():
        segments: list[SegmentSummary] = segments_of(stretches[place])
        facts = log_dirs[place.log_dir]
        logs[place] = ReplicaLog(facts, place.topic, place.partition, folder, segments)
    return logs


def _check_partition(logs: list[ReplicaLog]) -> list[Side]:
    cleaning = cleaning_of(logs)
    others = {id(log): [other for other in logs if other is not log] for log in logs}
    chains = []
    for log in logs:
        log.cleaning = cleaning
        chains.append(lay_out(log, others[id(log)]))
    for log, chain in zip(logs, chains, strict=True):
        check_offsets(log, chain, others[id(log)])
    sides = []
    for log in logs:
        check_offset_files(log, others[id(log)])
        sides.append(Side(log, check_epochs(log, others[id(log)])))
        check_files(log, others[id(log)])
    return sides
