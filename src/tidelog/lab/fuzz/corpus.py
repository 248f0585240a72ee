"""Frames that are kept: one a line, as hex, with what it is in front.

JoinGroup-9  000b0009000000070004...
# why the next one was found
Fetch-12     0001000c...
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Kept(NamedTuple):
    """A frame, without its length, and what it is called."""

    name: str
    frame: bytes


def read(path: Path) -> list[Kept]:
    found = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, digits = line.partition(" ")
            found.append(Kept(name, bytes.fromhex(digits.strip())))
    return found


def write(path: Path, about: str, kept: Iterable[Kept]) -> None:
    lines = [f"# {line}" for line in about.splitlines()]
    lines += [f"{one.name:28} {one.frame.hex()}" for one in kept]
    path.write_text("\n".join(lines) + "\n")
