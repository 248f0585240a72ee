"""Offsets in checkpoints beside the log they are about."""

from tidelog.apps.audit.checks.replica_log import METADATA_TOPIC, ReplicaLog
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.report.findings import Finding, Place
from tidelog.core.storage import layout


def check_log_dir(facts: LogDirFacts) -> list[Finding]:
    """What a log directory's files show by themselves."""
    place = Place(facts.name)
    findings = place.remarked(facts.remarks)
    known = set(facts.folders)
    files = {
        "log_start": layout.LOG_STARTS,
        "recovery_point": layout.RECOVERY_POINTS,
        "high_watermark": layout.HIGH_WATERMARKS,
    }
    for what, file in files.items():
        unknown = sorted(set(facts.offsets.get(what, {})) - known)
        if unknown and known:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            text = f"{unknown[0]}{more} have no folder here"
            findings.append(place.finding("unknown-partition", file, text))
    return findings


def check_promises(log: ReplicaLog, longest: int) -> None:
    """High watermark, recovery point and log start against the log's end. `longest` is where
    the longest other replica ends: what it has was there once."""
    if log.topic == METADATA_TOPIC or any(segment.vanished for segment in log.segments):
        return
    end = log.log_end
    high, recovery = log.high_watermark or 0, log.recovery_point or 0
    start = log.log_dir.offset("log_start", log.name) or 0
    if start > end:
        _beyond(log, "log-start", layout.LOG_STARTS, start)
    if any(finding.kind == "torn-batch" for finding in log.findings):
        return  # tells already that the end is missing
    if max(high, recovery) > end and log.excuses(end, max(high, recovery) - 1):
        return
    if high > end and (longest > end or recovery == high):
        last = log.segments[-1] if log.segments else None
        text = f"the log ends at {end}, its high watermark was {high}"
        log.add(
            log.place.finding(
                "committed-lost",
                last.file if last else "",
                text,
                position=last.size if last else -1,
                offsets=(end, high - 1),
            )
        )
        log.damaged.append((end, high - 1))
        if last:
            log.reshaped.add(last.file)
        return
    if high > end:
        _beyond(log, "high-watermark", layout.HIGH_WATERMARKS, high)
    if recovery > end:
        _beyond(log, "recovery-point", layout.RECOVERY_POINTS, recovery)


def _beyond(log: ReplicaLog, kind: str, file: str, offset: int) -> None:
    end = log.log_end
    text = f"{log.name} has {offset}; the log ends at {end}"
    finding = Place(log.replica).finding(kind, file, text, offsets=(end, offset))
    log.add(finding._replace(topic=log.topic, partition=log.partition))
