"""A stream's progress, committed to a consumer group, so that tools which show lag show it.

For people's eyes only: the stream goes by its checkpoint, never by what the group says. It is
done when Spark asks for the next batch, which means that the one before is done: at once
while nothing else is to be done, and no more than once a second otherwise. Always true: a
commit that fails is told once and harms nothing.
"""

import logging
import time

from tidelog.apps.spark.source.checkpoint import StreamOffset
from tidelog.apps.spark.source.survey import Survey
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets

LOG = logging.getLogger("tidelog.spark")
APART_S = 1.0


class GroupProgress:
    """Commits to `group`, if there is one."""

    def __init__(self, survey: Survey, group: str | None) -> None:
        self._survey = survey
        self._group = group
        self._committed: StreamOffset | None = None
        self._tried_at = float("-inf")
        self._told = False

    def done(self, start: StreamOffset, *, busy: bool) -> None:
        """Everything before `start` is processed; `busy`: there is a batch to be read now."""
        early = time.monotonic() - self._tried_at < APART_S
        if early and (busy or self._told):
            return
        self.reached(start)

    def reached(self, place: StreamOffset) -> None:
        """Commit, unless it was."""
        if self._group is None or not place.places:
            return
        if self._committed is not None and self._committed.places == place.places:
            return
        self._tried_at = time.monotonic()
        offsets = {key: Committed(at.offset, at.epoch) for key, at in place.places.items()}
        try:
            commit_offsets(self._survey.cluster, self._group, offsets)
        except ClientError as error:
            if not self._told:
                LOG.warning("progress is not committed to group %s: %s", self._group, error)
            self._told = True
        else:
            self._committed, self._told = place, False
