"""Fuzz brokers with invalid requests, in memory and through real sockets.

    make fuzz                                  10 million in memory, 100 thousand in states of
                                               SASL, 100 thousand through sockets
    make fuzz FRAMES=100000 SOCKETS=2000 SEED=7
    make fuzz SEEDS=write                      rewrite the seeds after a change of messages

A finding is reduced and printed as a line for tests/fuzz/corpus/findings.txt, which `make test`
replays. The exit code is 1 if there is a finding.
"""

import argparse
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tidelog.apps.cli import output
from tidelog.apps.fuzz import in_memory, over_sockets
from tidelog.core.api_table import APIS
from tidelog.lab.fuzz import corpus
from tidelog.lab.fuzz.campaign import Finding, begin, reduce, same_fault, signature
from tidelog.lab.fuzz.requests import RequestMaker
from tidelog.lab.fuzz.sasl_campaign import SaslCampaign

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_MAX = 20
SEEDS = "seeds.txt"
GROWTH_KB_MAX = 100_000


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return the exit code."""
    options = _arguments().parse_args(arguments)
    if options.write_seeds:
        write_seeds(options.corpus / SEEDS)
        return 0
    seed = int(time.time()) if options.seed is None else options.seed
    screen = output.screen()
    screen.print(f"seed {seed}")
    clean = True
    if options.frames:
        with output.progress("in memory", options.frames) as show:
            tally = in_memory.run(
                seed,
                options.frames,
                options.seconds,
                options.workers,
                options.corpus,
                lambda done: show(done, ""),
            )
        screen.print(
            f"in memory: {tally.frames} frames, {tally.answered} answered, {tally.refused} refused,"
            f" the slowest took {tally.slowest_s * 1000:.0f} ms,"
            f" memory grew by {tally.grown_kb // 1024} MB"
        )
        clean = not tally.findings and tally.grown_kb < GROWTH_KB_MAX
        for line in describe(tally.findings):
            screen.print(line, soft_wrap=True, markup=False, highlight=False)
    if options.sasl_frames:
        clean = fuzz_logins(screen, seed, options.sasl_frames, options.seconds) and clean
    if options.socket_frames:
        seeds = [kept.frame for kept in corpus.read(options.corpus / SEEDS)]
        for sasl in (False, True):
            clean = fuzz_sockets(screen, seed, options, seeds, sasl=sasl) and clean
    screen.print(output.verdict_line(clean, "nothing found" if clean else "found something"))
    return 0 if clean else 1


def fuzz_sockets(
    screen: "Console",
    seed: int,
    options: argparse.Namespace,
    seeds: list[bytes],
    *,
    sasl: bool,
) -> bool:
    """Send frames through sockets, with `sasl` as a stranger; return whether nothing was found."""
    frames = options.socket_frames // 10 if sasl else options.socket_frames
    name = "sockets without a login" if sasl else "sockets"
    with output.progress(name, frames) as show:
        report = over_sockets.run(
            seed, frames, options.seconds, seeds, lambda done: show(done, ""), sasl=sasl
        )
    screen.print(
        f"{name}: {report.frames} frames, {report.answered} connections got a response,"
        f" a valid request took at most {report.slowest_check_s * 1000:.0f} ms,"
        f" memory grew by {report.grown_kb // 1024} MB"
    )
    for fault in report.faults:
        screen.print(fault, markup=False)
    return not report.faults


def fuzz_logins(screen: "Console", seed: int, frames: int, seconds: float) -> bool:
    """Send hostile frames in every state of a login by SASL; return whether nothing was found."""
    until_s = time.monotonic() + seconds
    with output.progress("logins", frames) as show:
        tally = SaslCampaign(seed).run(frames, until_s, lambda done: show(done, ""))
    screen.print(
        f"logins: {tally.frames} frames, {tally.answered} answered, {tally.refused} connections"
        f" closed, the slowest frame took {tally.slowest_s * 1000:.0f} ms"
    )
    for finding in tally.findings[:SHOWN_MAX]:
        text = f"{finding.what} (seed {seed}): {finding.frame.hex()}"
        screen.print(text, soft_wrap=True, markup=False, highlight=False)
        for line in finding.where.splitlines()[-8:]:
            screen.print(line, soft_wrap=True, markup=False, highlight=False)
    return not tally.findings


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--frames",
        type=int,
        default=10_000_000,
        help="frames for brokers in memory (default: 10 million)",
    )
    parser.add_argument(
        "--socket-frames",
        type=int,
        default=100_000,
        help="frames through sockets (default: 100 thousand)",
    )
    parser.add_argument(
        "--sasl-frames",
        type=int,
        default=100_000,
        help="frames before and in the middle of a login by SASL (default: 100 thousand)",
    )
    parser.add_argument(
        "--seconds", type=float, default=3000, help="time limit of each part (default: 3000)"
    )
    parser.add_argument("--seed", type=int, help="random seed (default: the time)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument(
        "--corpus", type=Path, default=Path("tests/fuzz/corpus"), help="directory of stored frames"
    )
    parser.add_argument("--write-seeds", action="store_true", help="write the seeds and exit")
    return parser


def write_seeds(path: Path) -> None:
    """Write one request of each API and version."""
    _, world = begin()
    maker = RequestMaker(Random(0), world)
    kept = [
        corpus.Kept(f"{api.name}-{version}", maker.of(key, version))
        for key, api in sorted(APIS.items())
        for version in api.codec_versions
    ]
    corpus.write(path, "One request of each API and version, from our own encoder.", kept)


def describe(findings: list[Finding]) -> list[str]:
    """Return lines for each cause, with the smallest frame that shows it."""
    causes: dict[object, list[Finding]] = {}
    for finding in findings:
        causes.setdefault(signature(finding), []).append(finding)
    lines = []
    for same in list(causes.values())[:SHOWN_MAX]:
        smallest = min(same, key=lambda finding: len(finding.frame))
        fails = same_fault(smallest)
        reproducible = fails(smallest.frame)
        frame = reduce(smallest, fails) if reproducible else smallest.frame
        about = "" if reproducible else " (not by itself, only after other frames)"
        lines += [f"# {smallest.what}{about}, {len(same)} times", f"{'finding':28} {frame.hex()}"]
        lines += smallest.where.splitlines()[-8:]
    return lines


if __name__ == "__main__":
    sys.exit(main())
