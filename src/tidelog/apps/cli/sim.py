"""`tidelog sim`: whole clusters of the broker's own code, under seeded faults."""

import click

from tidelog.apps.cli.usage import (
    Section,
    examples,
    format_option,
    policy_option,
    workers_option,
)

POLICY_HELP = "The truncation rule that followers obey"


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog sim run --seeds 200",
        "tidelog sim run --seeds 200 --policy high-watermark",
        "tidelog sim replay 17",
    ),
)
def sim() -> None:
    """Run clusters under seeded faults, in virtual time, and judge every event."""


@sim.command(
    "run",
    epilog=examples(
        "tidelog sim run --seeds 2000",
        "tidelog sim run --seeds 50 --start 1000 --format json",
        "tidelog sim run --seeds 200 --policy high-watermark",
    ),
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many seeds to run.",
)
@click.option(
    "--start", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed."
)
@policy_option(POLICY_HELP)
@workers_option()
@format_option()
def run_command(seeds: int, start: int, policy: str, workers: int | None, form: str) -> int:
    """Run many seeds: faults of every kind, every event judged, then the cluster must settle.

    Exit code 0 means that no invariant was broken under any seed.
    """
    from tidelog.apps.cli import output, sim_view
    from tidelog.lab.sim.runner import run_seeds

    with output.progress("simulating", seeds) as tell:
        summary = run_seeds(seeds, start, policy, sim_view.watcher(tell), workers)
    report = sim_view.Run(summary)
    return output.conclude(form, summary.clean, report.as_data(), report.show)


@sim.command(
    "replay",
    epilog=examples("tidelog sim replay 17", "tidelog sim replay 17 --policy high-watermark"),
)
@click.argument("seed", type=click.IntRange(min=0))
@policy_option(POLICY_HELP)
@format_option()
def replay_command(seed: int, policy: str, form: str) -> int:
    """Run one seed again, exactly as it was, and show what happened last.

    Exit code 0 means that no invariant was broken.
    """
    from tidelog.apps.cli import output, sim_view
    from tidelog.lab.sim.runner import run_seed

    replay = sim_view.Replay(run_seed(seed, policy))
    return output.conclude(form, replay.result.clean, replay.as_data(), replay.show)
