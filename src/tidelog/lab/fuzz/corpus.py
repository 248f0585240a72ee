"""Files of frames: one per line, as hex, with a name in front.

JoinGroup-9  000b0009000000070004...
# why the next one was found
Fetch-12     0001000c...
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Kept(NamedTuple):
    """A frame without its length, and its name."""

    name: str
    frame: bytes


def read(path: Path) -> list[Kept]:
    """Read the frames of a file."""
    found = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, digits = line.partition(" ")
            found.append(Kept(name, bytes.fromhex(digits.strip())))
    return found


def write(path: Path, about: str, kept: Iterable[Kept]) -> None:
    """Write frames to a file, with a comment on top."""
    lines = [f"# {line}" for line in about.splitlines()]
    lines += [f"{one.name:28} {one.frame.hex()}" for one in kept]
    path.write_text("\n".join(lines) + "\n")
