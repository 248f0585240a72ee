"""The tree of commands.

    story   small text plays of replicas, played on the broker's own code
    sim     whole clusters of that code under seeded faults
    model   every state of small models, and mutants that must be caught

Exit codes: 0 all holds, 1 something does not, 2 the command line is wrong.
"""

import click

from tidelog.apps.cli.model import model
from tidelog.apps.cli.sim import sim
from tidelog.apps.cli.story import story
from tidelog.apps.cli.usage import Root, examples


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "tidelog story list",
        "tidelog story play hw-loses-acked-record",
        "tidelog sim run --seeds 100",
        "tidelog model table",
    ),
)
@click.version_option(package_name="tidelog", prog_name="tidelog")
def cli() -> None:
    """A replicated commit log: watch replicas disagree, and prove that ours do not.

    Exit code 0 means that all holds, 1 that something does not, 2 that the command line
    is wrong.
    """


cli.add_command(story)
cli.add_command(sim)
cli.add_command(model)


def main() -> None:
    """What the `tidelog` script calls."""
    cli.main()
