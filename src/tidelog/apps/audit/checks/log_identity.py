"""Whether replicas belong to one topic: their ids must be equal."""

from collections import Counter

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.core.storage import layout


def check_identity(logs: list[ReplicaLog]) -> None:
    """Told of those that differ from most others."""
    known = [log for log in logs if log.folder.topic_id]
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
