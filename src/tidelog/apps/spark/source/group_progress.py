"""A stream's progress, committed to a consumer group, so that tools which show lag show it.

For people's eyes only: the stream goes by its checkpoint, never by what the group says. It is
done when Spark asks for the next batch, which means that the one before is done: at once
while nothing else is to be done, and no more than once a second otherwise. Always true: a
commit that fails is told once, keeps a trigger waiting for two seconds at the most, and is
tried again only after a while.
"""

import logging
import time

from tidelog.apps.spark.source.checkpoint import StreamOffset
from tidelog.apps.spark.source.options.client_settings import ClientSettings
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets

LOG = logging.getLogger("tidelog.spark")
APART_S = 1.0
AFTER_FAILURE_S = 30.0
TIMEOUT_S = 2.0


class GroupProgress:
    """Commits to `group`, if there is one."""

    def __init__(self, client: ClientSettings, group: str | None) -> None:
        self._client = client._replace(timeout_s=min(client.timeout_s, TIMEOUT_S))
        self._group = group
        self._cluster: Cluster | None = None
        self._committed: StreamOffset | None = None
        self._tried_at = float("-inf")
        self._told = False

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def done(self, start: StreamOffset, *, busy: bool) -> None:
        """Everything before `start` is processed; `busy`: there is a batch to be read now."""
        if self._group is None or not start.places:
            return
        if self._committed is not None and self._committed.places == start.places:
            return
        pause_s = AFTER_FAILURE_S if self._told else APART_S if busy else 0.0
        if time.monotonic() - self._tried_at >= pause_s:
            self._commit(self._group, start)

    def _commit(self, group: str, place: StreamOffset) -> None:
        offsets = {key: Committed(at.offset, at.epoch) for key, at in place.places.items()}
        try:
            if self._cluster is None:
                self._cluster = self._client.cluster()
                self._cluster.refresh([])
            commit_offsets(self._cluster, group, offsets)
        except ClientError as error:
            if not self._told:
                LOG.warning("progress is not committed to group %s: %s", group, error)
            self._told = True
            self.close()
        else:
            self._committed, self._told = place, False
        self._tried_at = time.monotonic()
