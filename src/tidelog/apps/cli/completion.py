"""`tidelog completion`: print completion scripts for shells."""

import click

from tidelog.apps.cli.usage import examples

VARIABLE = "_TIDELOG_COMPLETE"


@click.command(
    "completion",
    epilog=examples(
        "tidelog completion bash",
        "tidelog completion zsh",
        "tidelog completion fish",
    ),
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
    found = kind(root, {}, "tidelog", VARIABLE)
    click.echo(found.source_template % found.source_vars())
    return 0
