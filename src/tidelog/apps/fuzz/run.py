"""Hostile frames: so many into brokers in memory, so many through real sockets.

    make fuzz                                  10 million, and 100 thousand through sockets
    make fuzz FRAMES=100000 SOCKETS=2000 SEED=7
    make fuzz SEEDS=write                      write the seeds anew, after a change of messages

What is found is reduced and printed as a line for tests/fuzz/corpus/findings.txt, where
`make test` replays it. The exit code is 1 if anything was found.
"""

import argparse
import sys
import time
from pathlib import Path
from random import Random

from tidelog.apps.cli import output
from tidelog.apps.fuzz import in_memory, over_sockets
from tidelog.core.api_table import APIS
from tidelog.lab.fuzz import corpus
from tidelog.lab.fuzz.campaign import Finding, begin, reduce, same_fault, signature
from tidelog.lab.fuzz.requests import RequestMaker

SHOWN_MAX = 20
SEEDS = "seeds.txt"
GROWTH_KB_MAX = 100_000


def main(arguments: list[str] | None = None) -> int:
    asked = _arguments().parse_args(arguments)
    if asked.write_seeds:
        write_seeds(asked.corpus / SEEDS)
        return 0
    seed = int(time.time()) if asked.seed is None else asked.seed
    screen = output.screen()
    screen.print(f"seed {seed}")
    sound = True
    if asked.frames:
        with output.progress("in memory", asked.frames) as tell:
            tally = in_memory.run(
                seed,
                asked.frames,
                asked.seconds,
                asked.workers,
                asked.corpus,
                lambda done: tell(done, ""),
            )
        screen.print(
            f"in memory: {tally.frames} frames, {tally.answered} answered, {tally.refused} refused,"
            f" the slowest took {tally.slowest_s * 1000:.0f} ms,"
            f" memory grew by {tally.grown_kb // 1024} MB"
        )
        sound = not tally.findings and tally.grown_kb < GROWTH_KB_MAX
        for line in told(tally.findings):
            screen.print(line, soft_wrap=True, markup=False, highlight=False)
    if asked.socket_frames:
        seeds = [kept.frame for kept in corpus.read(asked.corpus / SEEDS)]
        with output.progress("sockets", asked.socket_frames) as tell:
            report = over_sockets.run(
                seed, asked.socket_frames, asked.seconds, seeds, lambda done: tell(done, "")
            )
        screen.print(
            f"sockets: {report.frames} frames, {report.answered} connections were answered,"
            f" an honest client waited {report.slowest_honest_s * 1000:.0f} ms at most,"
            f" memory grew by {report.grown_kb // 1024} MB"
        )
        sound = sound and not report.faults
        for fault in report.faults:
            screen.print(fault, markup=False)
    screen.print(output.verdict_line(sound, "nothing found" if sound else "found something"))
    return 0 if sound else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--frames", type=int, default=10_000_000, help="in memory")
    parser.add_argument("--socket-frames", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3000, help="at most, for each of the two")
    parser.add_argument("--seed", type=int, help="of all that is drawn; without it, the time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--corpus", type=Path, default=Path("tests/fuzz/corpus"))
    parser.add_argument("--write-seeds", action="store_true", help="and do nothing else")
    return parser


def write_seeds(path: Path) -> None:
    """One request of each API and version."""
    _, world = begin()
    maker = RequestMaker(Random(0), world)
    kept = [
        corpus.Kept(f"{api.name}-{version}", maker.of(key, version))
        for key, api in sorted(APIS.items())
        for version in api.codec_versions
    ]
    corpus.write(path, "One request of each API and version, from our own encoder.", kept)


def told(findings: list[Finding]) -> list[str]:
    """Each cause once, with a frame made as small as it can be."""
    causes: dict[object, list[Finding]] = {}
    for finding in findings:
        causes.setdefault(signature(finding), []).append(finding)
    lines = []
    for same in list(causes.values())[:SHOWN_MAX]:
        smallest = min(same, key=lambda finding: len(finding.frame))
        fails = same_fault(smallest)
        alone = fails(smallest.frame)
        frame = reduce(smallest, fails) if alone else smallest.frame
        about = "" if alone else " (not by itself: others came before it)"
        lines += [f"# {smallest.what}{about}, {len(same)} times", f"{'finding':28} {frame.hex()}"]
        lines += smallest.where.splitlines()[-8:]
    return lines


if __name__ == "__main__":
    sys.exit(main())
