"""Journals of transactional clients: one file of JSON lines for each life of a client.

Each row is written to the file at once, so a client that kills itself loses none. Its last line may
be incomplete; then the event that it describes has not happened.
"""

import json
import os
from collections.abc import Iterator

from tidelog.apps.verify.checker.transactions.events import Event, as_row, from_row

_PREFIX, _SUFFIX = "transactions-", ".jsonl"


class EventJournal:
    """Appends the events of one life of a client."""

    def __init__(self, folder: str, client: int, life: int) -> None:
        path = os.path.join(folder, f"{_PREFIX}{client}-{life}{_SUFFIX}")
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed in close

    def add(self, event: Event) -> None:
        """Write one event."""
        self._file.write(json.dumps(as_row(event)).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_events(folder: str) -> Iterator[Event]:
    """Yield the events of all clients of a run; those of one client are in order."""
    names = [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    for name in sorted(names, key=_client_and_life):
        with open(os.path.join(folder, name), "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield from_row(json.loads(line))


def _client_and_life(name: str) -> list[int]:
    return [int(part) for part in name.removeprefix(_PREFIX).removesuffix(_SUFFIX).split("-")]
