"""`tidelog sim`: simulate clusters of the broker's code under seeded faults."""

from collections.abc import Callable

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import (
    F,
    Section,
    examples,
    format_option,
    history_option,
    policy_option,
    story_file_option,
    workers_option,
    write_history,
)

POLICY_HELP = "Truncation rule of the followers"


def _shrink_option(what: str) -> Callable[[F], F]:
    return click.option(
        "--shrink/--no-shrink",
        "shorten",
        default=True,
        show_default=True,
        help=f"Shorten the fault schedule of {what}.",
    )


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog sim run --seeds 200",
        "tidelog sim run --seeds 200 --policy high-watermark",
        "tidelog sim replay 17",
    ),
)
def sim() -> None:
    """Simulate clusters under seeded faults in virtual time, and check invariants."""


@sim.command(
    "run",
    epilog=examples(
        "tidelog sim run --seeds 2000",
        "tidelog sim run --seeds 50 --start 1000 --format json",
        "tidelog sim run --seeds 200 --policy high-watermark --story loss.txt",
    ),
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=100, show_default=True, help="Number of seeds."
)
@click.option(
    "--start", type=click.IntRange(min=0), default=0, show_default=True, help="First seed."
)
@policy_option(POLICY_HELP)
@_shrink_option("the first failure")
@story_file_option("Write the first failure, if any, to FILE as a story.")
@workers_option()
@format_option()
def run_command(
    seeds: int,
    start: int,
    policy: str,
    shorten: bool,
    story_file: str | None,
    workers: int | None,
    form: str,
) -> int:
    """Run many seeds: inject faults, check invariants after every event, then check recovery.

    Exit code 0 means that no invariant was violated under any seed.
    """
    from tidelog.apps.cli.rendering import sim as rendering
    from tidelog.lab.sim.runner import run_seeds

    with output.progress("simulating", seeds) as show_progress:
        summary = run_seeds(seeds, start, policy, rendering.watcher(show_progress), workers)
    first = rendering.examine(summary.failures[0], shorten) if summary.failures else None
    if first and story_file:
        first.write(story_file)
    report = rendering.Run(summary, first)
    return output.conclude(form, summary.clean, report.as_data(), report.show)


@sim.command(
    "replay",
    epilog=examples(
        "tidelog sim replay 17",
        "tidelog sim replay 17 --events",
        "tidelog sim replay 17 --policy high-watermark --no-shrink",
        "tidelog sim replay 17 --history events.jsonl",
    ),
)
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--events", is_flag=True, help="Show every event, not only the last ones.")
@policy_option(POLICY_HELP)
@_shrink_option("the failure, if it fails")
@story_file_option("Write the failure, if any, to FILE as a story.")
@history_option()
@format_option()
def replay_command(
    seed: int,
    events: bool,
    policy: str,
    shorten: bool,
    story_file: str | None,
    history_file: str | None,
    form: str,
) -> int:
    """Repeat the run of one seed exactly, and show its last events.

    Exit code 0 means that no invariant was violated.
    """
    from tidelog.apps.cli.rendering import sim as rendering
    from tidelog.lab.sim.runner import replay

    result, lines, history = replay(seed, policy)
    if history_file:
        write_history(history_file, history)
    failure = None if result.clean else rendering.examine(result, shorten)
    if failure and story_file:
        failure.write(story_file)
    report = rendering.Replay(result, lines if events else [], failure)
    return output.conclude(form, result.clean, report.as_data(), report.show)
