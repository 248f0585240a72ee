"""One process that puts frames into a broker in memory; `in_memory.py` starts and watches it.

It writes a line of JSON now and then, and a last one with all that it found. The frame under
way lies in a file that outlives it.
"""

import json
import mmap
import sys
import time
from pathlib import Path

from tidelog.lab.fuzz import corpus
from tidelog.lab.fuzz.campaign import Campaign

BOX_BYTES = 1 << 20
TELL_S = 0.5


class BlackBox:
    """The last frame, for whoever finds the process dead."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(BOX_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), BOX_BYTES)

    def put(self, frame: bytes) -> None:
        kept = frame[: BOX_BYTES - 4]
        self._map[: 4 + len(kept)] = len(kept).to_bytes(4, "big") + kept


def last_frame(path: Path) -> bytes:
    raw = path.read_bytes()
    return raw[4 : 4 + int.from_bytes(raw[:4], "big")]


def main(arguments: list[str]) -> None:
    seed, frames, seconds, folder, box = arguments
    seeds = [
        kept.frame for path in sorted(Path(folder).glob("*.txt")) for kept in corpus.read(path)
    ]
    campaign = Campaign(int(seed), seeds, BlackBox(Path(box)).put)
    told_at = 0.0

    def progress(done: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > TELL_S:
            told_at = time.monotonic()
            _tell({"frames": done})

    tally = campaign.run(int(frames), time.monotonic() + float(seconds), progress)
    found = [[finding.frame.hex(), finding.what, finding.where] for finding in tally.findings]
    _tell({**tally._asdict(), "findings": found, "done": True})


def _tell(news: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
