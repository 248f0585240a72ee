"""Fuzz brokers in memory with several worker processes; detect workers that die or hang.

A worker prints reports as lines of JSON, the last one with all findings. Its current frame is in a
file that remains if the process dies.
"""

import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tidelog.lab.fuzz import corpus
from tidelog.lab.fuzz.campaign import Campaign, Finding, Tally

# -- a worker process -----------------------------------------------------------------------------


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


def work(arguments: list[str]) -> None:
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


# -- all workers ----------------------------------------------------------------------------------


WORKER = "tidelog.apps.fuzz.in_memory"
HANG_S = 60.0
"""A worker without output for this long hangs: it reports twice a second."""
POLL_S = 0.05


class _Worker:
    """A worker process and its reports."""

    def __init__(self, seed: int, frames: int, seconds: float, corpus: Path, folder: Path) -> None:
        self.box = folder / f"frame-{seed}"
        self._reports = folder / f"reports-{seed}"
        with self._reports.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", WORKER]
                + [str(each) for each in (seed, frames, seconds, corpus, self.box)],
                stdout=output,
            )
        self._file: IO[str] = self._reports.open()
        self.reported_at = time.monotonic()
        self.frames = 0
        self.result: dict[str, Any] | None = None

    def read_reports(self) -> None:
        while (line := self._file.readline()).endswith("\n"):
            report = json.loads(line)
            self.frames = report["frames"]
            self.reported_at = time.monotonic()
            if "done" in report:
                self.result = report

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._file.close()


def run(
    seed: int,
    frames: int,
    seconds: float,
    workers: int,
    corpus: Path,
    progress: Callable[[int], None],
) -> Tally:
    """Run all workers, each with its own seed, and return their common result."""
    with tempfile.TemporaryDirectory() as folder:
        share = -(-frames // workers)
        processes = [
            _Worker(seed + number, share, seconds, corpus, Path(folder))
            for number in range(workers)
        ]
        lost: list[Finding] = []
        try:
            working = set(processes)
            while working:
                time.sleep(POLL_S)
                for worker in list(working):
                    ended = worker.process.poll()
                    worker.read_reports()
                    if ended is not None:
                        working.discard(worker)
                        if worker.result is None:
                            what = f"a worker exited with code {ended}"
                            lost.append(Finding(last_frame(worker.box), what, ""))
                    elif time.monotonic() - worker.reported_at > HANG_S:
                        working.discard(worker)
                        worker.process.kill()
                        lost.append(Finding(last_frame(worker.box), "a worker hangs", ""))
                progress(sum(worker.frames for worker in processes))
        finally:
            for worker in processes:
                worker.close()
        return _sum([worker.result for worker in processes if worker.result is not None], lost)


def _sum(results: list[dict[str, Any]], lost: list[Finding]) -> Tally:
    findings = [
        Finding(bytes.fromhex(frame), what, where)
        for result in results
        for frame, what, where in result["findings"]
    ]
    return Tally(
        sum(result["frames"] for result in results),
        sum(result["answered"] for result in results),
        sum(result["refused"] for result in results),
        max((result["slowest_s"] for result in results), default=0.0),
        max((result["grown_kb"] for result in results), default=0),
        findings + lost,
    )


if __name__ == "__main__":
    work(sys.argv[1:])
