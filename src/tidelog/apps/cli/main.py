"""The tree of commands, and `tidelog completion`, which prints completion scripts for it.

Invariant: a command's module is imported only when that command runs, so that no command pays for
the imports of another. Exit codes: 0 success, 1 a check failed or a request was rejected, 2 the
command line is invalid.
"""

import click

from tidelog.apps.cli.usage import LazyCommands, Root, examples

COMMANDS = LazyCommands(
    {
        "demo": "tidelog.apps.cli.demo:demo",
        "up": "tidelog.apps.cli.local.lifecycle:up",
        "status": "tidelog.apps.cli.local.lifecycle:status",
        "down": "tidelog.apps.cli.local.lifecycle:down",
        "broker": "tidelog.apps.cli.local.broker:broker",
        "console": "tidelog.apps.cli.console:console",
        "cluster": "tidelog.apps.cli.cluster:cluster",
        "partition": "tidelog.apps.cli.partition:partition",
        "explain": "tidelog.apps.cli.explain:explain_command",
        "loss": "tidelog.apps.cli.loss:loss",
        "topic": "tidelog.apps.cli.topic:topic",
        "produce": "tidelog.apps.cli.records.produce:produce",
        "consume": "tidelog.apps.cli.records.consume:consume",
        "group": "tidelog.apps.cli.group:group",
        "transaction": "tidelog.apps.cli.transaction:transaction",
        "user": "tidelog.apps.cli.security.user:user",
        "config": "tidelog.apps.cli.config:config",
        "log-dir": "tidelog.apps.cli.log_dir:log_dir",
        "acl": "tidelog.apps.cli.security.acl:acl",
        "quota": "tidelog.apps.cli.security.quota:quota",
        "features": "tidelog.apps.cli.features:features",
        "reassign": "tidelog.apps.cli.reassign:reassign",
        "completion": "tidelog.apps.cli.main:completion",
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
COMPLETE_VARIABLE = "_TIDELOG_COMPLETE"
"""The environment variable by which a completion script calls this program."""


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


@click.command(
    "completion",
    epilog=examples("tidelog completion bash", "tidelog completion zsh", "tidelog completion fish"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print a shell script that completes commands, options and topics.

    For bash, add this line to ~/.bashrc: source <(tidelog completion bash). For zsh, add the same
    with zsh to ~/.zshrc. For fish, write the output to ~/.config/fish/completions/tidelog.fish.
    Topic names are completed if a cluster is running.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # Whether the shell is installed is not checked: the script may be for another machine.
    found = kind(root, {}, "tidelog", COMPLETE_VARIABLE)
    click.echo(found.source_template % found.source_vars())
    return 0


def main() -> None:
    """Run the command line."""
    cli.main()
