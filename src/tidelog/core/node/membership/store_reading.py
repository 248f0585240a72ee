"""Following the metadata store: all of it once, then what changes, and all of it again whenever
the watch was lost."""

from collections.abc import Callable

from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.node import events as on
from tidelog.core.node.effects import ReadStore, WatchStore
from tidelog.core.node.membership.store_history import refusal
from tidelog.core.node.turn import Turn
from tidelog.core.storage.log_directory import LogDirectory

READ_AGAIN_MS = 500


class StoreReading:
    """Keeps the image as new as the store lets it be."""

    def __init__(
        self,
        turn: Turn,
        image: ClusterImage,
        directory: LogDirectory,
        advance: Callable[[ImageDelta], None],
        set_aside_strays: Callable[[], None],
        accepted: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        """`accepted` is called once, when the store was found to be the one that this broker
        has followed; `refused` if it is not, with the reason."""
        self._turn = turn
        self._image = image
        self._directory = directory
        self._advance = advance
        self._set_aside_strays = set_aside_strays
        self._accepted = accepted
        self._refused = refused
        self._is_accepted = False
        self._read_again_ms: int | None = None

    def read(self, _event: on.WatchLost | None = None) -> None:
        """Ask for all of it."""
        self._read_again_ms = None
        seen = self._directory.seen
        self._turn.emit(ReadStore(0 if seen is None or self._is_accepted else seen.revision))

    def store_read(self, event: on.StoreRead) -> None:
        if not isinstance(event.answer, Snapshot):
            self._read_again_ms = self._turn.now_ms + READ_AGAIN_MS
            return
        if not self._is_accepted:
            reason = refusal(self._directory, event.answer)
            if reason is not None:
                self._refuse(reason)
                return
            self._is_accepted = True
            self._accepted()
        # The end of an older watch may have told more than the snapshot knows.
        if event.answer.rev >= self._image.revision:
            self._advance(self._image.load(event.answer))
            self._set_aside_strays()
        self._turn.emit(WatchStore(self._image.revision))

    def _refuse(self, reason: str) -> None:
        """Stop without any change on disk; the mark of a clean stop stays."""
        directory = self._directory
        if directory.clean:
            directory.close(directory.high_watermarks, directory.broker_epoch)
        self._refused(reason)

    def store_changed(self, event: on.StoreChanged) -> None:
        self._advance(self._image.apply(event.batch))

    def tick(self) -> None:
        if self._read_again_ms is not None and self._turn.now_ms >= self._read_again_ms:
            self.read()

    def next_ms(self) -> int | None:
        return self._read_again_ms
