"""Logs that should be on this disk when the broker starts, and are not.

Somebody removed a folder, or the disk is another one. The controller may hold this broker for
one that has every committed record; so it is told, and from its first heartbeat on this broker
wants to stay fenced until the image shows the loss. Until then the folder is not made anew:
after a crash the loss would be found again. And where nobody leads it is not made at all: there
is nothing to put into it, and somebody may yet bring the old one back.

Looked for only once, in the first image: a log that is missing later is of a new replica. So
is one that was made later than this disk knows of (`LogDirectory.revision`), when the broker
died before it saw it, and one that is only on its way here (`adding`).
"""

from tidelog.core.controller.effects import PartitionErrorsAnswer
from tidelog.core.controller.events import LostLogsReceived
from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.membership.controller_seat import ControllerSeat
from tidelog.core.node.turn import Turn
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import BrokerEpoch

RETRY_MS = 50
TOLD_AT_ONCE_MAX = 1000


class LostLogs:
    """What this broker still has to tell about its disk."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        seat: ControllerSeat,
        directory: LogDirectory,
    ) -> None:
        self.untold: dict[PartitionKey, None] = {}
        """Lost, and the image does not show it yet."""
        self.found: dict[PartitionKey, None] = {}
        """Here, and the image says that it is lost."""
        self._config = config
        self._turn = turn
        self._image = image
        self._seat = seat
        self._directory = directory
        self._looked = False
        self._round = 0
        self._asking = False
        self._ask_at_ms: int | None = None

    def image_advanced(self, delta: ImageDelta) -> None:
        """Look at the first image; in later ones, see what the controller has taken in."""
        if not self._looked:
            self._looked = True
            for key in sorted(delta.partitions):
                self._look(key)
            if self._directory.revision is None:
                self._directory.seen = self._image.point
                self._directory.write_revision(self._image.revision)
        elif self.untold:
            self.untold = {key: None for key in self.untold if self._is_lost(key)}
        found = [key for key in (*self.found, *delta.partitions) if self._is_found(key)]
        self.found = dict.fromkeys(sorted(found))
        if delta.controller:
            # Whoever was asked may never answer: ask the new one.
            self._again(0)

    @property
    def undecided(self) -> bool:
        """Whether there may be losses that the cluster does not know of."""
        return not self._looked or bool(self.untold)

    def withheld(self, key: PartitionKey) -> bool:
        """Whether this partition's log is not to be made yet."""
        if key in self.untold:
            return True
        known = self._image.partitions[key]
        return known.leader is None and self._config.broker_id in known.lost and not self._has(key)

    def _look(self, key: PartitionKey) -> None:
        adding = self._config.broker_id in self._image.partitions[key].adding
        if self._is_lost(key) and not adding and self._was_here(key) and not self._has(key):
            self.untold[key] = None
            self._turn.journal.note("log_lost", *self._image.name_of(key) or ())

    def _has(self, key: PartitionKey) -> bool:
        name = self._image.name_of(key)
        log = None if name is None else self._directory.logs.get(name)
        if log is None or log.topic_id is None:
            # A folder that was emptied, or whose making was cut short.
            return log is not None and log.log_end_offset > 0
        return log.topic_id == key.topic_id

    def _was_here(self, key: PartitionKey) -> bool:
        upto = self._directory.revision
        return upto is None or self._image.created[key] <= upto

    def _is_lost(self, key: PartitionKey) -> bool:
        """Whether the image still holds this broker for one that has a log."""
        if not self._image.committed(key):
            return False
        me, known = self._config.broker_id, self._image.partitions[key]
        told = me in known.lost or (known.leader is not None and me in known.behind)
        return me in known.replicas and not told

    def _is_found(self, key: PartitionKey) -> bool:
        """Whether the last leader's log is here, and the image says that it is lost."""
        known = self._image.partitions.get(key)
        if known is None or known.leader is not None or not known.lost:
            return False
        me = self._config.broker_id
        return me in known.lost and me in known.last_known_elr and self._has(key)

    # -- telling ---------------------------------------------------------------------------

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        """Tell what there is to tell, if it is time."""
        if broker_epoch is None or self._asking or not (self.untold or self.found):
            return
        if self._ask_at_ms is not None and self._turn.now_ms < self._ask_at_ms:
            return
        self._asking = True
        self._round += 1
        this_round = self._round
        lost, found = list(self.untold)[:TOLD_AT_ONCE_MAX], list(self.found)[:TOLD_AT_ONCE_MAX]

        def answered(answer: PartitionErrorsAnswer) -> None:
            if this_round == self._round:
                if answer.error is ErrorCode.NONE:
                    # Told is enough: what the image says next is looked at again.
                    for key in found:
                        self.found.pop(key, None)
                self._again(RETRY_MS)

        def failed() -> None:
            if this_round == self._round:
                self._again(RETRY_MS)

        sent = self._seat.call(
            LostLogsReceived(0, self._config.broker_id, broker_epoch, tuple(lost), tuple(found)),
            self._config.broker_session_timeout_ms // 2,
            answered,
            failed,
        )
        if not sent:
            failed()

    def _again(self, after_ms: int) -> None:
        """What the image does not show by then is told once more."""
        self._round += 1
        self._asking = False
        self._ask_at_ms = self._turn.now_ms + after_ms

    def next_ms(self, broker_epoch: BrokerEpoch | None) -> int | None:
        """When there is something to tell again."""
        return None if broker_epoch is None or self._asking else self._ask_at_ms
