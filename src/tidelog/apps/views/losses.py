"""Views of lost records, from the ledgers of brokers or the folders of stopped brokers.

The ledgers come first: they are complete. The internal topic `__tidelog_losses` adds entries of
brokers that don't respond, or whose disk was replaced.

An entry is an event in the format of histories (core/history.py), with the fields of
core/node/hosting/loss_recorder.py. Null means unknown.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.core.history import HistoryEvent
from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.storage import layout
from tidelog.core.storage.loss_ledger import FILES
from tidelog.core.types import LOSSES_TOPIC, BrokerId
from tidelog.shell.client import admin
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.offsets import EARLIEST, list_offset

DEPTH_MAX = 3
"""How deep log directories may be below the folder that the user gives."""


class NoLedger(Exception):
    """A folder has no log directory; the text is one line for users."""


class LossView(NamedTuple):
    """One entry of a ledger."""

    id: str
    at_ms: int
    broker: BrokerId | None
    """The replica that removed the records; for an unclean election the broker that wrote it."""
    event: str
    """`loss` or `unclean_election`."""
    topic: str
    partition: int
    cause: str
    leader: BrokerId | None
    leader_epoch: int | None
    first_epoch: int | None
    last_epoch: int | None
    start: int | None
    end: int | None
    records: int | None
    committed: int | None
    acked_1: int | None
    acked_all: int | None
    not_acked: int | None
    acks_unknown: int | None
    text: str
    source: str = "ledger"
    """`ledger`, or `topic` if only the internal topic has the entry."""

    @property
    def acknowledged(self) -> int | None:
        """How many of the records this broker certainly acknowledged; None if unknown."""
        if self.acked_1 is None or self.acked_all is None:
            return None
        return self.acked_1 + self.acked_all


class LossesView(NamedTuple):
    """The losses of a cluster, oldest first."""

    losses: list[LossView]
    unread: dict[str, str]
    """Brokers whose ledger could not be read, with the reason."""
    topic_problem: str | None = None
    """Why the internal topic could not be read; None if it was read, or does not exist."""

    @property
    def holds(self) -> bool:
        """Whether every ledger was read."""
        return not self.unread

    def as_data(self) -> dict[str, Any]:
        return {
            "losses": [loss._asdict() for loss in self.losses],
            "unread": self.unread,
            "topic_problem": self.topic_problem,
        }


def view_losses(cluster: Cluster, topic: str | None = None, since_ms: int = 0) -> LossesView:
    """Fetch the ledgers of all brokers, and the topic. Raises ClientError if no broker responds."""
    entries: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    cluster.refresh()
    for broker, known in admin.registered_brokers(cluster).items():
        if broker not in cluster.metadata.brokers:
            state = "offline" if known.fenced else "not in the metadata"
            unread[f"broker {broker}"] = f"it is {state}; its ledger is in its log directory"
            continue
        try:
            entries += admin.describe_losses(cluster, broker, topic, since_ms)
        except ClientError as error:
            unread[f"broker {broker}"] = str(error)
    in_ledgers = {_written(entry) for entry in entries}
    problem = None
    try:
        published = [one for one in _published(cluster) if topic in (None, one.get("topic"))]
    except (ClientError, CorruptRecord) as error:
        published, problem = [], str(error)
    more = [{**one, "source": "topic"} for one in published if _written(one) not in in_ledgers]
    kept = [one for one in _merged(entries + more) if one.at_ms >= since_ms]
    return LossesView(kept, unread, problem)


def _written(entry: dict[str, Any]) -> tuple[str, Any]:
    return str(entry.get("id")), entry.get("broker")


def _published(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Yield the entries in the internal topic. Raises ClientError, CorruptRecord."""
    found = cluster.metadata.topics.get(LOSSES_TOPIC)
    if found is None or 0 not in found.partitions:
        return
    if found.partitions[0].leader == NO_LEADER:
        raise ClientError(f"{LOSSES_TOPIC}-0 has no leader")
    start = list_offset(cluster, LOSSES_TOPIC, 0, EARLIEST).offset
    for record in Reader(cluster).read(LOSSES_TOPIC, 0, start):
        if record.value is not None:
            yield from _parsed([record.value])


def read_losses(folder: str, topic: str | None = None, since_ms: int = 0) -> LossesView:
    """Read the ledgers of all log directories below a folder. Raises NoLedger."""
    entries: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    found = sorted(_log_dirs(Path(folder), DEPTH_MAX))
    if not found:
        raise NoLedger(f"{folder!r} has no log directory: no {layout.META_PROPERTIES} was found")
    for directory in found:
        try:
            lines = [line for name in FILES for line in _lines(directory / name)]
        except OSError as error:
            unread[str(directory)] = error.strerror or str(error)
            continue
        entries += _parsed(lines)
    kept = [one for one in entries if topic in (None, one.get("topic"))]
    return LossesView([each for each in _merged(kept) if each.at_ms >= since_ms], unread)


def _log_dirs(folder: Path, depth: int) -> Iterator[Path]:
    try:
        names = {entry.name: entry for entry in folder.iterdir()}
    except OSError:
        return
    if layout.META_PROPERTIES in names or any(name in names for name in FILES):
        yield folder
    elif depth:
        for entry in names.values():
            if entry.is_dir():
                yield from _log_dirs(entry, depth - 1)


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the entries; a line that a crash cut off is skipped."""
    for line in lines:
        try:
            data = json.loads(line)
            HistoryEvent.from_data(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield data


def _merged(entries: Iterable[dict[str, Any]]) -> list[LossView]:
    """Return one view for each id, oldest first. The entries of one id differ if the controller and
    the leader both wrote it; then known values replace unknown ones."""
    by_id: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = str(entry.get("id"))
        known = by_id.setdefault(name, entry)
        if known.get("start") is None and entry.get("start") is not None:
            by_id[name] = {**known, **{k: v for k, v in entry.items() if v is not None}}
        if "source" not in known or "source" not in entry:
            by_id[name] = {k: v for k, v in by_id[name].items() if k != "source"}
    views = (_view(entry) for entry in by_id.values())
    return sorted(views, key=lambda one: (one.at_ms, one.id))


def _view(entry: dict[str, Any]) -> LossView:
    event = HistoryEvent.from_data(entry)
    own = {name: entry.get(name) for name in LossView._fields}
    own |= {"id": str(entry.get("id")), "at_ms": event.at_ms}
    own["source"] = entry.get("source", "ledger")
    return LossView(**own)  # type: ignore[arg-type]
