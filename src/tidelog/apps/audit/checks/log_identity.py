"""Whether replicas belong to one topic and one cluster: their ids must be equal."""

import os
from collections import Counter

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.report.findings import Finding, Place
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


def unite_clusters(log_dirs: dict[str, LogDirFacts], logs: list[ReplicaLog]) -> list[Finding]:
    """Log directories that lie side by side and share a topic's id are of one cluster, whatever
    they say: else a replica would be compared with nobody. Without any id they are taken for
    what those beside them are, or all others."""
    findings = []
    everywhere = {facts.cluster_id for facts in log_dirs.values()} - {""}
    for path, facts in log_dirs.items():
        beside = [
            other
            for other in log_dirs.values()
            if os.path.dirname(other.path) == os.path.dirname(path) and other.cluster_id
        ]
        ids = Counter(other.cluster_id for other in beside)
        common = ids.most_common(1)[0][0] if ids else ""
        if not ids and len(everywhere) == 1:
            (common,) = everywhere
        if facts.cluster_id == common or (facts.cluster_id and ids[common] < 2):
            continue
        if facts.cluster_id:
            if not _topics(logs, path) & _topics(logs, *(o.path for o in beside if o is not facts)):
                continue
            others = sorted(other.name for other in beside if other.cluster_id == common)
            text = f"cluster.id is {facts.cluster_id} here, {common} on {', '.join(others)}"
            findings.append(
                Place(facts.name).finding("meta-properties", layout.META_PROPERTIES, text)
            )
        log_dirs[path] = facts._replace(cluster_id=common)
    for log in logs:
        log.log_dir = log_dirs[log.log_dir.path]
    return findings


def _topics(logs: list[ReplicaLog], *paths: str) -> set[tuple[str, str]]:
    return {
        (log.topic, log.folder.topic_id)
        for log in logs
        if log.log_dir.path in paths and log.folder.topic_id
    }
