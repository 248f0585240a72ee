"""Where the history of a cluster is kept: in its data folder, or by cluster id in the state folder
of the user."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidelog.apps.console.history.store import MAX_BYTES, HistoryStore
from tidelog.apps.console.recorder import HistorySpan, NoRecorder, Recorder
from tidelog.apps.console.sample import Seen
from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.types import BrokerId
from tidelog.shell.client.cluster_metadata import ClusterMetadata

FILE = "console-history.db"


def recorder_for(data: str | None, max_bytes: int = MAX_BYTES) -> Recorder:
    """Return the recorder of a cluster; `data` is its folder on this machine. 0 bytes: none."""
    if max_bytes <= 0:
        return NoRecorder()
    if data is not None:
        return HistoryStore(history_path(data, None), max_bytes)
    return StoreByClusterId(max_bytes)


def history_path(data: str | None, cluster_id: str | None) -> str:
    """Return the file of a cluster's history: in its data folder, or by its id."""
    if data is not None:
        return os.path.join(data, FILE)
    name = "".join(each if each.isalnum() or each in "-_" else "_" for each in cluster_id or "")
    return os.path.join(state_folder(), name[:100], FILE)


def state_folder() -> str:
    """Return the folder for the histories of remote clusters."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "tidelog", "console")


class StoreByClusterId:
    """A store that is opened when the first sample says which cluster it is."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._store: Recorder = NoRecorder()
        self._cluster_id: str | None = None

    def record(
        self, at_ms: int, states: Mapping[BrokerId, State], metadata: ClusterMetadata
    ) -> None:
        """Record in the store of this cluster."""
        found = metadata.cluster_id
        if found and found != self._cluster_id:
            old, self._cluster_id = self._store, found
            path = history_path(None, found)
            with suppress(OSError):  # the store says why it can't write
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._store = HistoryStore(path, self._max_bytes)
            old.close()
        self._store.record(at_ms, states, metadata)

    def state_at(
        self, at_ms: int, topic: str | None = None
    ) -> tuple[Mapping[BrokerId, State], ClusterMetadata] | None:
        return self._store.state_at(at_ms, topic)

    def sampled_at(self, at_ms: int) -> int | None:
        return self._store.sampled_at(at_ms)

    def last_seen(self, at_ms: int, topic: str, partition: int) -> Mapping[BrokerId, Seen]:
        return self._store.last_seen(at_ms, topic, partition)

    def record_groups(self, at_ms: int, groups: Sequence[GroupSample], *, complete: bool) -> None:
        self._store.record_groups(at_ms, groups, complete=complete)

    def groups_at(self, at_ms: int) -> tuple[int, Sequence[GroupSample]] | None:
        return self._store.groups_at(at_ms)

    def group_events(self, group: str, to_ms: int | None, limit: int) -> list[dict[str, Any]]:
        return self._store.group_events(group, to_ms, limit)

    def span(self) -> HistorySpan | None:
        return self._store.span()

    def events(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        return self._store.events(from_ms, to_ms, topic, partition, limit)

    def timeline(self, topic: str | None, partition: int | None) -> dict[str, Any]:
        return self._store.timeline(topic, partition)

    def close(self) -> None:
        self._store.close()
