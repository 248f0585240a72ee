"""Check at startup that the metadata store is the one that this broker has followed so far.

A store may lose its newest changes: its write-ahead log is damaged or removed, or an older copy
is put in its place. It then names topics, leaders and in-sync replicas of an earlier time. A
broker that trusted it would set folders aside as strays, or let a replica lead that lacks
acknowledged records. So each broker records on disk the last revision that it applied
(`LogDirectory.seen`) and does not start on a store that is older or has another history.

Invariant: nothing is written, in the store or in the log directory, before the store is accepted.
"""

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.history import NO_CHECKSUM, WAY_OUT
from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.controller.metadata.registrations import decode_topic
from tidelog.core.storage import layout
from tidelog.core.storage.log_directory import LogDirectory


def refusal(directory: LogDirectory, snapshot: Snapshot) -> str | None:
    """Why a broker with this log directory must not start on this store; None if it may."""
    if directory.revision_damaged:
        return _doubt(directory, snapshot)
    seen = directory.seen
    if seen is None:
        return None
    if snapshot.rev < seen.revision:
        return (
            f"the metadata store went back in time: it is at revision {snapshot.rev}, and this"
            f" broker has seen revision {seen.revision}; nothing was changed; {WAY_OUT}"
        )
    known = NO_CHECKSUM if snapshot.earlier is None else snapshot.earlier
    if NO_CHECKSUM not in (known, seen.checksum) and known != seen.checksum:
        return (
            "the metadata store has another history than the one that this broker followed up to"
            f" revision {seen.revision}: it went back in time and was then written to; nothing was"
            f" changed; {WAY_OUT}"
        )
    return None


def _doubt(directory: LogDirectory, snapshot: Snapshot) -> str | None:
    """A broker whose record is damaged accepts a store that has all its topics."""
    names = (kv for kv in snapshot.kvs if kv.key.startswith(keys.TOPIC_NAMES))
    known = {decode_topic(kv.key, kv.value).topic_id for kv in names}
    unknown = sorted(
        name for name, log in directory.logs.items() if log.topic_id not in (None, *known)
    )
    if not unknown:
        return None
    return (
        f"{layout.METADATA_REVISION} is damaged, and the metadata store does not know the topic of"
        f" {len(unknown)} folders here ({unknown[0]} first): either they were deleted, or the store"
        f" went back in time; if they were deleted, remove {layout.METADATA_REVISION} from this"
        f" log directory; else {WAY_OUT}"
    )
