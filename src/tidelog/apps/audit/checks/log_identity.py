"""Check that replicas belong to the same topic and cluster: their ids must be equal."""

import os
from collections import Counter
from functools import reduce
from operator import xor

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.report.findings import Finding, Place
from tidelog.core.storage import layout


def check_identity(logs: list[ReplicaLog]) -> None:
    """Report replicas of a topic without a topic id, or with one that differs from most others."""
    known = [log for log in logs if log.folder.topic_id]
    for log in logs:
        reported = any(each.file == layout.PARTITION_METADATA for each in log.folder.remarks)
        peers = [other for other in known if other.partition == log.partition]
        if not log.folder.topic_id and peers and not reported and log.segments:
            kind = "partition-metadata" if log.batches else "topic-id-missing"
            text = (
                f"the file is missing; topic id on {peers[0].replica}: {peers[0].folder.topic_id}"
            )
            log.add(log.place.finding(kind, layout.PARTITION_METADATA, text))
    counted = Counter(log.folder.topic_id for log in known)
    if len(counted) < 2:
        return
    common = counted.most_common(1)[0][0]
    for log in known:
        if log.folder.topic_id != common:
            right = [other for other in known if other.folder.topic_id == common]
            peers = [other for other in right if other.partition == log.partition]
            others = ", ".join(sorted(other.replica for other in peers))
            where = f"on {others}" if others else f"in {right[0].name}"
            text = f"topic id {log.folder.topic_id} here, {common} {where}"
            log.add(log.place.finding("topic-id", layout.PARTITION_METADATA, text))


_OWN = frozenset(
    {"topic-id", "partition-metadata", "unreadable", "leftover", "foreign-file", "vanished"}
)
"""Kinds of findings that do not depend on the batches of a log."""


def report_foreign_logs(logs: list[ReplicaLog]) -> None:
    """Replace the findings of a log that belongs to another partition or an older topic.

    Such a log differs from its replicas everywhere, so one finding is enough.
    """
    owners: dict[tuple[int, int, int], set[str]] = {}
    for log in logs:
        for key in _contents(log):
            owners.setdefault(key, set()).add(log.name)
    for log in logs:
        differing = [each for each in log.findings if each.kind == "replica-divergence"]
        contents = _contents(log)
        if not differing or not contents:
            continue
        names = set.intersection(*(owners[key] for key in contents)) - {log.name}
        begins = min(each.first_offset for each in differing) <= log.segments[0].base_offset
        of_old = begins and any(each.kind == "topic-id" for each in log.findings)
        if not names and not of_old:
            continue
        log.findings = [f for f in log.findings if f.kind in _OWN]
        if names and not of_old:
            first = log.segments[0]
            offsets = (first.base_offset, max(log.log_end, log.guaranteed_end) - 1)
            text = f"all its batches belong to {', '.join(sorted(names))}"
            found = log.place.finding("replica-divergence", first.file, text, position=0)
            log.add(found._replace(first_offset=offsets[0], last_offset=offsets[1]))


def _contents(log: ReplicaLog) -> list[tuple[int, int, int]]:
    """Return a fingerprint of each segment: base offset, number of batches, digest."""
    return [
        (segment.base_offset, segment.batches, reduce(xor, (s.digest for s in segment.stretches)))
        for segment in log.segments
        if segment.batches
    ]


def unite_clusters(log_dirs: dict[str, LogDirFacts], logs: list[ReplicaLog]) -> list[Finding]:
    """Assign adjacent log directories that share a topic id to one cluster, and report wrong ids.

    Otherwise a replica with a wrong cluster id would not be compared at all. A directory without
    a cluster id gets that of its neighbours, or the only one that exists.
    """
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


def check_nodes(log_dirs: dict[str, LogDirFacts], logs: list[ReplicaLog]) -> list[Finding]:
    """Report log directories with the same node id that can't belong to one broker.

    They share a partition, which a broker has in one log directory only, or a directory id. The
    directory whose name ends with the node id counts as right, else the first.
    """
    known: dict[tuple[str, str, str], list[LogDirFacts]] = {}
    for path, facts in sorted(log_dirs.items()):
        if facts.node_id:
            key = (os.path.dirname(path), facts.cluster_id, facts.node_id)
            known.setdefault(key, []).append(facts)
    findings = []
    for (_, _, node_id), found in known.items():
        right = next((each for each in found if _number(each.path) == node_id), found[0])
        for facts in found:
            shared = _folders(logs, facts.path) & _folders(logs, right.path)
            same_id = facts.directory_id and facts.directory_id == right.directory_id
            if facts is not right and (shared or same_id):
                both = f"{right.name} has the same" + (" and the same directory.id" * bool(same_id))
                text = f"node.id is {node_id} here, and {both}"
                place = Place(facts.name)
                findings.append(place.finding("meta-properties", layout.META_PROPERTIES, text))
    return findings


def _number(path: str) -> str:
    """Return the digits at the end of a folder's name."""
    name = os.path.basename(path)
    return name[len(name.rstrip("0123456789")) :]


def _folders(logs: list[ReplicaLog], path: str) -> set[str]:
    return {log.name for log in logs if log.log_dir.path == path}


def _topics(logs: list[ReplicaLog], *paths: str) -> set[tuple[str, str]]:
    return {
        (log.topic, log.folder.topic_id)
        for log in logs
        if log.log_dir.path in paths and log.folder.topic_id
    }
