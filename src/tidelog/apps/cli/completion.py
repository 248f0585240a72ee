"""`tidelog completion`: what a shell needs to complete commands, options and topics."""

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
    """Print the script that makes a shell complete commands, options and topics.

    For bash, add to ~/.bashrc: source <(tidelog completion bash). For zsh likewise to
    ~/.zshrc. For fish, write it to ~/.config/fish/completions/tidelog.fish. Topics are asked
    of the cluster while you type; no cluster, no names.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # bash itself is not looked for: the script may be for another machine.
    found = kind(root, {}, "tidelog", VARIABLE)
    click.echo(found.source_template % found.source_vars())
    return 0
