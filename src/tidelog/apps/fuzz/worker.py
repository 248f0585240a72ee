"""A worker process that fuzzes one broker in memory; in_memory.py starts and watches it.

It prints reports as lines of JSON, the last one with all findings. The current frame is in a file
that remains if the process dies.
"""

import json
import mmap
import sys
import time
from pathlib import Path

from tidelog.lab.fuzz import corpus
from tidelog.lab.fuzz.campaign import Campaign

BOX_BYTES = 1 << 20
REPORT_S = 0.5


class FrameFile:
    """A file with the current frame, for the case that the process dies."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(BOX_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), BOX_BYTES)

    def put(self, frame: bytes) -> None:
        kept = frame[: BOX_BYTES - 4]
        self._map[: 4 + len(kept)] = len(kept).to_bytes(4, "big") + kept


def last_frame(path: Path) -> bytes:
    """Return the frame in the file of a dead worker."""
    raw = path.read_bytes()
    return raw[4 : 4 + int.from_bytes(raw[:4], "big")]


def main(arguments: list[str]) -> None:
    """Run the frames and print reports."""
    seed, frames, seconds, folder, box = arguments
    seeds = [
        kept.frame for path in sorted(Path(folder).glob("*.txt")) for kept in corpus.read(path)
    ]
    campaign = Campaign(int(seed), seeds, FrameFile(Path(box)).put)
    reported_at = 0.0

    def progress(done: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > REPORT_S:
            reported_at = time.monotonic()
            _report({"frames": done})

    tally = campaign.run(int(frames), time.monotonic() + float(seconds), progress)
    found = [[finding.frame.hex(), finding.what, finding.where] for finding in tally.findings]
    _report({**tally._asdict(), "findings": found, "done": True})


def _report(report: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
