"""The interface of the history store: what the collector writes, and what the pages read.

`state_at` returns the same types that the collector fetches, so the views of the past are the
views of the present. The views read these keys of a broker's state: `broker_epoch`, `acting`,
`now_ms`, `losses.recent`, `partitions`; and of each partition in it: `topic`, `partition`,
`topic_id`, `role`, `leader`, `leader_epoch`, `partition_epoch`, `log_start_offset`,
`log_end_offset`, `high_watermark`, `last_stable_offset`, `recovery_point`, `epochs`, `damage`,
`size`, `segments`, `isr`, `pending_isr`, `elr`, `lost`, `min_isr`, `adding`, `removing`,
`unclean_election`, `unstable`, `followers`. A store that does not keep one of them returns
None for it, or an empty list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.apps.console.sample import Seen
from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.types import BrokerId
from tidelog.shell.client.cluster_metadata import ClusterMetadata


class HistorySpan(NamedTuple):
    """How far back the store reaches, and how large it is."""

    from_ms: int
    to_ms: int
    bytes: int
    max_bytes: int


class Recorder(Protocol):
    """Keeps samples. `record` and the readers are called by different threads."""

    def record(
        self, at_ms: int, states: Mapping[BrokerId, State], metadata: ClusterMetadata
    ) -> None:
        """Keep what changed since the last sample. A broker that did not respond has no state."""

    def state_at(
        self, at_ms: int, topic: str | None = None
    ) -> tuple[Mapping[BrokerId, State], ClusterMetadata] | None:
        """Return the last sample up to this time; None if the store begins later.

        With a topic: at least this topic; others may be left out.
        """

    def sampled_at(self, at_ms: int) -> int | None:
        """Return the time of the sample that `state_at` returns."""

    def last_seen(self, at_ms: int, topic: str, partition: int) -> Mapping[BrokerId, Seen]:
        """Return the last states of the brokers that were silent at this time, with one partition
        only. Empty if the store does not know them."""

    def record_groups(self, at_ms: int, groups: Sequence[GroupSample], *, complete: bool) -> None:
        """Keep what changed about groups since they were last recorded. If they are not complete,
        groups that are missing still exist."""

    def groups_at(self, at_ms: int) -> tuple[int, Sequence[GroupSample]] | None:
        """Return the time of the last sample of groups up to this time, and the groups; None if
        there is none. Log ends may be unknown: those of the replicas' states count."""

    def group_events(self, group: str, to_ms: int | None, limit: int) -> list[dict[str, Any]]:
        """Return events of a group up to this time, newest first."""

    def span(self) -> HistorySpan | None:
        """Return what the store covers; None if it is empty."""

    def events(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Return events, newest first: `HistoryEvent.as_data()` and `at_ms`."""

    def timeline(self, topic: str | None, partition: int | None) -> dict[str, Any]:
        """Return {from_ms, to_ms, marks: [{at_ms, kind, text}]} for the scrubber."""

    def close(self) -> None:
        """Close the store; later calls are not allowed."""


class NoRecorder:
    """A recorder without a history: only the present is known."""

    def record(
        self, at_ms: int, states: Mapping[BrokerId, State], metadata: ClusterMetadata
    ) -> None:
        """Discard the sample."""

    def state_at(
        self,
        at_ms: int,  # noqa: ARG002
        topic: str | None = None,  # noqa: ARG002
    ) -> tuple[Mapping[BrokerId, State], ClusterMetadata] | None:
        return None

    def sampled_at(self, at_ms: int) -> int | None:  # noqa: ARG002
        return None

    def last_seen(self, at_ms: int, topic: str, partition: int) -> Mapping[BrokerId, Seen]:  # noqa: ARG002
        return {}

    def record_groups(self, at_ms: int, groups: Sequence[GroupSample], *, complete: bool) -> None:
        """Discard the groups."""

    def groups_at(self, at_ms: int) -> tuple[int, Sequence[GroupSample]] | None:  # noqa: ARG002
        return None

    def group_events(self, group: str, to_ms: int | None, limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return []

    def span(self) -> HistorySpan | None:
        return None

    def events(
        self,
        from_ms: int | None,  # noqa: ARG002
        to_ms: int | None,  # noqa: ARG002
        topic: str | None,  # noqa: ARG002
        partition: int | None,  # noqa: ARG002
        limit: int,  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        return []

    def timeline(self, topic: str | None, partition: int | None) -> dict[str, Any]:  # noqa: ARG002
        return {"from_ms": None, "to_ms": None, "marks": []}

    def close(self) -> None:
        """Do nothing: no store is open."""
