"""Follow the metadata store: read all of it once, then watch its changes.

All of it is read again whenever the watch was lost.

At startup the broker checks that the store is the one that it has followed so far. A store may lose
its newest changes: its write-ahead log is damaged or removed, or an older copy is put in its place.
It then names topics, leaders and in-sync replicas of an earlier time. A broker that trusted it
would set folders aside as strays, or let a replica lead that lacks acknowledged records. So each
broker records on disk the last revision that it applied (`LogDirectory.seen`) and does not start on
a store that is older or has another history (ADR 34), nor on one with feature levels that its
software does not support (ADR 47).

Invariant: nothing is written, in the store or in the log directory, before the store is accepted.
"""

from tidelog.core.controller.metadata import features, keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.controller.metadata.features import FeatureRange
from tidelog.core.controller.metadata.history import NO_CHECKSUM, WAY_OUT
from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.controller.metadata.registrations import decode_features, decode_topic
from tidelog.core.node.effects import ReadStore, WatchStore
from tidelog.core.node.turn import Turn
from tidelog.core.storage import layout
from tidelog.core.storage.log_directories import BrokerLogs

READ_AGAIN_MS = 500


class StoreFollower:
    """Requests snapshots and the watch, and checks the first snapshot."""

    def __init__(
        self,
        turn: Turn,
        image: ClusterImage,
        directory: BrokerLogs,
        supported: tuple[FeatureRange, ...],
    ) -> None:
        self.accepted = False
        """Whether the store was found to be the one that this broker has followed so far."""
        self._turn = turn
        self._image = image
        self._directory = directory
        self._supported = supported
        self._read_again_ms: int | None = None

    def read(self) -> None:
        """Request a snapshot of the whole store."""
        self._read_again_ms = None
        seen = self._directory.seen
        self._turn.emit(ReadStore(0 if seen is None or self.accepted else seen.revision))

    def read_again_later(self) -> None:
        """Request another snapshot after a pause: the store was not available."""
        self._read_again_ms = self._turn.now_ms + READ_AGAIN_MS

    def accept(self, snapshot: Snapshot) -> str | None:
        """Accept the store by its first snapshot; else return the reason for refusing it.

        A refusal changes nothing on disk: the mark of a clean stop stays.
        """
        reason = self._unsupported(snapshot) or refusal(self._directory, snapshot)
        if reason is None:
            self.accepted = True
        else:
            self._directory.restore_mark()
        return reason

    def _unsupported(self, snapshot: Snapshot) -> str | None:
        """Why this software must not run on the store's feature levels; None if it may.

        A store without levels that has admitted a broker was written by older software. A new one
        gets its levels with the first admission.
        """
        levels: dict[str, int] = {}
        for kv in snapshot.kvs:
            if kv.key == keys.FEATURES:
                return features.refusal(decode_features(kv.value), self._supported)
            if kv.key.startswith(keys.BROKER_STATES):
                levels = features.WITHOUT_KEY
        return features.refusal(levels, self._supported)

    def load(self, snapshot: Snapshot) -> ImageDelta | None:
        """Load a snapshot into the image; None if the image is newer.

        The last changes of an older watch may be newer than the snapshot.
        """
        if snapshot.rev < self._image.revision:
            return None
        return self._image.load(snapshot)

    def watch(self) -> None:
        """Request every change after the image's revision."""
        self._turn.emit(WatchStore(self._image.revision))

    def tick(self) -> None:
        """Request the next snapshot if it is due."""
        if self._read_again_ms is not None and self._turn.now_ms >= self._read_again_ms:
            self.read()

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._read_again_ms


def refusal(directory: BrokerLogs, snapshot: Snapshot) -> str | None:
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


def _doubt(directory: BrokerLogs, snapshot: Snapshot) -> str | None:
    """Return why to refuse the store if the revision on disk is damaged: the store lacks a
    topic."""
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
