"""Whether replicas belong to one topic: their ids must be equal."""

from collections import Counter

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.core.storage import layout


def check_identity(logs: list[ReplicaLog]) -> None:
    """Told of those that differ from most others."""
    known = [log for log in logs if log.folder.topic_id]
    for log in logs if known else ():
        told = any(each.file == layout.PARTITION_METADATA for each in log.folder.remarks)
        if not log.folder.topic_id and not told and log.segments:
            text = f"no topic id here, {known[0].folder.topic_id} on {known[0].replica}"
            log.add(log.place.finding("topic-id-missing", layout.PARTITION_METADATA, text))
    counted = Counter(log.folder.topic_id for log in known)
    if len(counted) < 2:
        return
    most = max(counted.values())
    common = next(topic_id for topic_id, count in counted.items() if count == most)
    for log in known:
        if log.folder.topic_id != common:
            others = sorted(other.replica for other in known if other.folder.topic_id == common)
            text = f"topic id {log.folder.topic_id} here, {common} on {', '.join(others)}"
            log.add(log.place.finding("topic-id", layout.PARTITION_METADATA, text))
