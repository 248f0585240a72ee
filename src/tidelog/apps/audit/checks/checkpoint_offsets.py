"""Offsets in checkpoints beside the log they are about."""

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


def check_log_dir(facts: LogDirFacts, elsewhere: Mapping[str, str]) -> list[Finding]:
    """What a log directory's files show by themselves; `elsewhere` names, by partition, another
    log directory of the cluster that has it. A broker that stops in an orderly way leaves no
    line about a partition that it gave away."""
    place = Place(facts.name)
    findings = place.remarked(facts.remarks)
    if facts.folders is None:
        return findings
    told: set[str] = set()
    moved = {each.file.rpartition(".")[0] for each in facts.remarks if each.kind == "leftover"}
    for what, file in _NAMING.items():
        unknown = sorted(set(facts.offsets.get(what, {})) - set(facts.folders) - told)
        told |= set(unknown)
        lost = [name for name in unknown if name in elsewhere and name not in moved and facts.clean]
        for name in lost:
            last = (facts.offset(what, name) or 0) - 1
            text = f"{name} has no folder here; {elsewhere[name]} has one, {file} tells of it"
            found = place.finding("committed-lost", f"{name}/", text, offsets=(0, last))
            topic, _, partition = name.rpartition("-")
            findings.append(found._replace(topic=topic, partition=int(partition)))
        unknown = [name for name in unknown if name not in lost]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            text = f"{unknown[0]}{more} have no folder here"
            findings.append(place.finding("unknown-partition", file, text))
    return findings


def check_promises(log: ReplicaLog, longest: int) -> None:
    """High watermark, recovery point and log start against the log's end. `longest` is where
    the longest other replica ends: what it has was there once."""
    unread = len(log.folder.segments) > len(log.segments) or log.folder.error
    vanished = any(segment.vanished for segment in log.segments)
    if vanished or unread:
        return
    if log.topic == METADATA_TOPIC or log.high_watermark is None:
        _check_named(log, longest)
    if log.topic == METADATA_TOPIC:
        return
    end = log.log_end
    high, recovery = log.high_watermark or 0, log.recovery_point or 0
    start = log.log_dir.offset("log_start", log.name) or 0
    if start > end:
        _beyond(log, "log-start", layout.LOG_STARTS, start)
    elif start > high and log.clean and log.high_watermark is not None:
        text = f"{log.name} has {start}, above its high watermark {high}"
        _add(log, "log-start", layout.LOG_STARTS, text, (high, start))
    if log.cleaner_noted > end:
        _beyond(log, "cleaner-offset", layout.CLEANER_OFFSETS, log.cleaner_noted)
    if any(finding.kind == "torn-batch" for finding in log.findings):
        return  # tells already that the end is missing
    if max(high, recovery) > end and log.excuses(end, max(high, recovery) - 1):
        return
    named = any(end <= each < high for each in _named(log))
    if high > end and (longest > end or recovery == high or named):
        _lost(log, high, f"its high watermark was {high}")
        return
    if high > end:
        _beyond(log, "high-watermark", layout.HIGH_WATERMARKS, high)
    if recovery > end:
        _beyond(log, "recovery-point", layout.RECOVERY_POINTS, recovery)


def _named(log: ReplicaLog) -> list[int]:
    """The last offsets that the indexes of the last segment name."""
    if not log.segments:
        return []
    head = log.segments[-1].stretches[0]
    return [head.offset_last, head.time_last[1] if head.time_last else -1]


def _check_named(log: ReplicaLog, longest: int) -> None:
    """Without a high watermark, indexes are witnesses of what was there: both of them, or one
    and another replica."""
    named = _named(log)
    missing = [offset for offset in named if offset >= log.log_end]
    sure = len(missing) == 2 or any(offset < longest for offset in missing)
    if missing and sure and not log.excuses(log.log_end, max(missing)):
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
