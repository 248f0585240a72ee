"""Compare the offsets in checkpoint files with the log."""

from collections.abc import Mapping

from tidelog.apps.audit.checks.replica_log import METADATA_TOPIC, ReplicaLog
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.report.findings import Finding, Place
from tidelog.core.storage import layout

_NAMING = {
    "high_watermark": layout.HIGH_WATERMARKS,
    "recovery_point": layout.RECOVERY_POINTS,
    "log_start": layout.LOG_STARTS,
}
_KINDS = {
    "high_watermark": "high-watermark",
    "recovery_point": "recovery-point",
    "log_start": "log-start",
}


def check_log_dir(facts: LogDirFacts, elsewhere: Mapping[str, str]) -> list[Finding]:
    """Return the findings about the files of a log directory.

    `elsewhere` gives, by partition, another log directory of the cluster that has it. After a
    clean shutdown, checkpoints have no line for a partition that the broker no longer has.
    """
    place = Place(facts.name)
    findings = place.remarked(facts.remarks)
    if facts.folders is None:
        return findings
    for what, file in _NAMING.items() if facts.clean and facts.folders else ():
        if what not in facts.offsets and all(each.file != file for each in facts.remarks):
            text = "the file is missing, although the broker stopped cleanly"
            findings.append(place.finding(_KINDS[what], file, text))
    listed: set[str] = set()
    moved = {each.file.rpartition(".")[0] for each in facts.remarks if each.kind == "leftover"}
    for what, file in _NAMING.items():
        unknown = sorted(set(facts.offsets.get(what, {})) - set(facts.folders) - listed)
        listed |= set(unknown)
        lost = [name for name in unknown if name in elsewhere and name not in moved and facts.clean]
        for name in lost:
            last = (facts.offset(what, name) or 0) - 1
            text = f"{name} has no folder here, but {file} names it; {elsewhere[name]} has one"
            found = place.finding("committed-lost", f"{name}/", text, offsets=(0, last))
            topic, _, partition = name.rpartition("-")
            findings.append(found._replace(topic=topic, partition=int(partition)))
        unknown = [name for name in unknown if name not in lost]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            text = f"partitions without a folder in this log directory: {unknown[0]}{more}"
            findings.append(place.finding("unknown-partition", file, text))
    return findings


def check_offset_files(log: ReplicaLog, others: list[ReplicaLog]) -> None:
    """Compare high watermark, recovery point and log start with the log end.

    A record that another replica has was once in this log too.
    """
    longest = max((other.log_end for other in others), default=0)
    if log.is_read_in_part:
        return
    if log.topic == METADATA_TOPIC or log.high_watermark is None:
        _check_named(log, longest)
    if log.topic == METADATA_TOPIC:
        return
    end = log.log_end
    high, recovery = log.high_watermark or 0, log.recovery_point or 0
    _check_start(log, others)
    if log.cleaner_checkpoint > end:
        _beyond(log, "cleaner-offset", layout.CLEANER_OFFSETS, log.cleaner_checkpoint)
    if any(finding.kind == "torn-batch" for finding in log.findings):
        return  # the finding already reports that the end is missing
    if max(high, recovery) > end and log.has_damage_in(end, max(high, recovery) - 1):
        return
    named = any(end <= each < high for each in _named(log))
    if high > end and (longest > end or recovery == high or named):
        _lost(log, high, f"its high watermark was {high}")
        return
    if high > end:
        _beyond(log, "high-watermark", layout.HIGH_WATERMARKS, high)
    if recovery > end:
        _beyond(log, "recovery-point", layout.RECOVERY_POINTS, recovery)
    if log.clean and end > log.log_start and not log.damaged:
        _check_behind(log, others)


def _check_start(log: ReplicaLog, others: list[ReplicaLog]) -> None:
    """Compare the checkpointed log start with the log end, high watermark and leader epochs."""
    start = log.log_dir.offset("log_start", log.name) or 0
    high = log.high_watermark
    if start > log.log_end:
        _beyond(log, "log-start", layout.LOG_STARTS, start)
    elif not log.clean:
        return
    elif high is not None and start > high:
        text = f"{log.name} has {start}, above its high watermark {high}"
        _add(log, "log-start", layout.LOG_STARTS, text, (high, start))
    elif log.folder.epochs and start > (begun := log.folder.epochs[0][1]):
        same = any(other.log_dir.offset("log_start", log.name) == start for other in others)
        if not same:  # otherwise the epoch checkpoint is wrong
            text = f"{log.name} has {start}; its leader epochs start at {begun}"
            _add(log, "log-start", layout.LOG_STARTS, text, (begun, start))


def _check_behind(log: ReplicaLog, others: list[ReplicaLog]) -> None:
    """Report checkpoints below the log end after a clean shutdown.

    A clean shutdown flushes the log, so the recovery point must equal the log end. A follower
    learns the high watermark later, so a lower one is only a notice.
    """
    end, high, recovery = log.log_end, log.high_watermark, log.recovery_point
    wrong = {each.file for each in log.log_dir.remarks}
    checkpointed = {what for what in log.log_dir.offsets if _NAMING.get(what) not in wrong}
    newest = max(log.folder.snapshots, default=-1)
    if recovery is not None and max(newest, recovery) < end and recovery in (high, newest):
        _report_after_stop(log, recovery)
        return
    if "recovery_point" in checkpointed and (recovery is None or recovery < end):
        has = "has no line" if recovery is None else f"has {recovery}"
        text = f"{log.name} {has}; the log ends at {end}, and its broker stopped cleanly"
        _add(log, "recovery-point", layout.RECOVERY_POINTS, text, (recovery or 0, end))
    same = [other for other in others if other.clean and other.log_end == end]
    agreed = len(same) == len(others) > 0
    if "high_watermark" in checkpointed and agreed and (high is None or high < end):
        has = "has no line" if high is None else f"has {high}"
        text = f"{log.name} {has}; the log ends at {end}, and all replicas end there"
        _add(log, "watermark-behind", layout.HIGH_WATERMARKS, text, (high or 0, end))


def _report_after_stop(log: ReplicaLog, stopped: int) -> None:
    """Report batches after the log end that two files recorded at the clean shutdown."""
    places = [
        (segment.file, position)
        for segment in log.segments
        for stretch in segment.stretches
        for offset, position in stretch.marks
        if offset == stopped
    ]
    file, position = places[0] if places else (log.segments[-1].file, -1)
    text = f"the log ended at {stopped} when its broker stopped cleanly"
    offsets = (stopped, log.log_end - 1)
    log.add(log.place.finding("after-stop", file, text, position=position, offsets=offsets))
    log.damaged.append(offsets)


def _named(log: ReplicaLog) -> list[int]:
    """Return the last offsets in both indexes of the last segment."""
    if not log.segments:
        return []
    head = log.segments[-1].stretches[0]
    return [head.offset_last, head.time_last[1] if head.time_last else -1]


def _check_named(log: ReplicaLog, longest: int) -> None:
    """Report lost records by the indexes, for a log without a high watermark.

    This needs both indexes, or one index and another replica that has the offset.
    """
    named = _named(log)
    missing = [offset for offset in named if offset >= log.log_end]
    sure = len(missing) == 2 or any(offset < longest for offset in missing)
    if missing and sure and not log.has_damage_in(log.log_end, max(missing)):
        _lost(log, max(missing) + 1, f"its indexes name offset {max(missing)}")


def _lost(log: ReplicaLog, until: int, why: str) -> None:
    last = log.segments[-1] if log.segments else None
    file, position = (last.file, last.size) if last else ("", -1)
    offsets = (log.log_end, until - 1)
    text = f"the log ends at {log.log_end}, {why}"
    log.add(log.place.finding("committed-lost", file, text, position=position, offsets=offsets))
    log.damaged.append(offsets)
    log.reshaped.add(file)


def _beyond(log: ReplicaLog, kind: str, file: str, offset: int) -> None:
    end = log.log_end
    text = f"{log.name} has {offset}; the log ends at {end}"
    _add(log, kind, file, text, (end, offset))


def _add(log: ReplicaLog, kind: str, file: str, text: str, offsets: tuple[int, int]) -> None:
    finding = Place(log.replica).finding(kind, file, text, offsets=offsets)
    log.add(finding._replace(topic=log.topic, partition=log.partition))
