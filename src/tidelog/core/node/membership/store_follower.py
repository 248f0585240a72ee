"""Follow the metadata store: read all of it once, then watch its changes.

All of it is read again whenever the watch was lost.
"""

from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.node.effects import ReadStore, WatchStore
from tidelog.core.node.membership.store_history import refusal
from tidelog.core.node.turn import Turn
from tidelog.core.storage.log_directory import LogDirectory

READ_AGAIN_MS = 500


class StoreFollower:
    """Requests snapshots and the watch, and checks the first snapshot."""

    def __init__(self, turn: Turn, image: ClusterImage, directory: LogDirectory) -> None:
        self.accepted = False
        """Whether the store was found to be the one that this broker has followed so far."""
        self._turn = turn
        self._image = image
        self._directory = directory
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
        reason = refusal(self._directory, snapshot)
        if reason is None:
            self.accepted = True
        elif self._directory.clean:
            self._directory.close(self._directory.high_watermarks, self._directory.broker_epoch)
        return reason

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
