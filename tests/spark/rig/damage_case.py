"""Ways to damage a log directory, each with the findings that an audit must report.

A case damages broker 2 of a small cluster, unless it says otherwise. The expected finding has the
kind, the replica, the file and, where they matter, the byte and the offsets.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mini_cluster import FOLDER, MiniCluster

from tidelog.apps.audit.report.findings import Finding

ANY = None


class Expected(NamedTuple):
    kind: str
    file: str
    position: int | None = ANY
    offsets: tuple[int, int] | None = ANY
    replica: str = "broker-2"


def matches(found: Sequence[Finding], expected: Sequence[Expected]) -> bool:
    """Whether exactly these were found; a replica is named by the last part of its path."""
    return len(found) == len(expected) and all(map(_fits, found, expected))


def _fits(found: Finding, expected: Expected) -> bool:
    return (
        (found.kind, found.file, found.replica.rpartition("/")[2])
        == (expected.kind, expected.file, expected.replica)
        and expected.position in (ANY, found.position)
        and expected.offsets in (ANY, (found.first_offset, found.last_offset))
    )


Break = Callable[[MiniCluster], list[Expected]]


class Case(NamedTuple):
    name: str
    do: Break
    made: Callable[[], list[bytearray]] | None = None


CASES: list[Case] = []


def case(made: Callable[[], list[bytearray]] | None = None) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        CASES.append(Case(function.__name__, function, made))
        return function

    return register


def log(file: str) -> str:
    return f"{FOLDER}/{file}"
