"""The tree of commands.

Invariant: a command's module is imported only when that command runs, so that no command pays for
the imports of another. Exit codes: 0 success, 1 a check failed or a request was rejected, 2 the
command line is invalid.
"""

import click

from tidelog.apps.cli.usage import LazyCommands, Root, examples

COMMANDS = LazyCommands(
    {
        "demo": "tidelog.apps.cli.demo:demo",
        "up": "tidelog.apps.cli.local.up:up",
        "status": "tidelog.apps.cli.local.running:status",
        "down": "tidelog.apps.cli.local.running:down",
        "broker": "tidelog.apps.cli.local.broker:broker",
        "cluster": "tidelog.apps.cli.cluster:cluster",
        "partition": "tidelog.apps.cli.partition:partition",
        "topic": "tidelog.apps.cli.topic:topic",
        "produce": "tidelog.apps.cli.records.produce:produce",
        "consume": "tidelog.apps.cli.records.consume:consume",
        "group": "tidelog.apps.cli.group:group",
        "config": "tidelog.apps.cli.config:config",
        "reassign": "tidelog.apps.cli.reassign:reassign",
        "completion": "tidelog.apps.cli.completion:completion",
        "inspect": "tidelog.apps.cli.inspect:inspect",
        "audit": "tidelog.apps.cli.audit:audit",
        "repair": "tidelog.apps.cli.repair:repair",
        "store": "tidelog.apps.cli.store:store",
        "verify": "tidelog.apps.cli.verify:verify",
        "pipeline": "tidelog.apps.cli.pipeline:pipeline",
        "story": "tidelog.apps.cli.story:story",
        "sim": "tidelog.apps.cli.sim:sim",
        "model": "tidelog.apps.cli.model:model",
    }
)
"""Command name -> "module:attribute", in the order of `tidelog --help`."""


@click.group(
    cls=Root,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "tidelog up",
        "tidelog produce greetings --create",
        "tidelog consume greetings -e",
        "tidelog cluster health",
        "tidelog story play hw-loses-acked-record",
        "tidelog sim run --seeds 100",
        "tidelog model table",
    ),
)
@click.version_option(package_name="tidelog", prog_name="tidelog")
def cli() -> None:
    """A replicated commit log that speaks Kafka's protocol, with tools to test it.

    Exit codes: 0 success, 1 a check failed or a request was rejected, 2 the command line is
    invalid.
    """


def main() -> None:
    """Run the command line."""
    cli.main()
