"""`tidelog user`: users with SCRAM credentials, which the metadata store keeps."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, connected_cluster
from tidelog.apps.cli.usage import Section, examples, usage_error
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.client.administration.users import User

_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog user create alice",
        "tidelog user list",
        "tidelog user delete alice",
    ),
)
def user() -> None:
    """Create, list and delete users who authenticate by SCRAM."""


@user.command(
    "create",
    epilog=examples(
        "tidelog user create alice",
        "tidelog user create alice --mechanism SCRAM-SHA-256 --password-stdin",
    ),
)
@click.argument("name", metavar="USER")
@click.option(
    "--mechanism",
    type=click.Choice(_MECHANISMS),
    default=SCRAM_SHA_512,
    show_default=True,
    help="Mechanism that the password is for.",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    metavar="N",
    help=f"Hash iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX}; more make guessing slower.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from the first line of standard input; else ask for it.",
)
@cluster_options()
def create_command(
    name: str,
    mechanism: str,
    iterations: int,
    password_stdin: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Create a user, or replace the user's password.

    The password is never an argument, because all users of this machine could read it there.
    """
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.shell.client.administration.users import store_user

    password = _password(name, from_stdin=password_stdin)
    with connected_cluster(bootstrap, timeout_s) as connected:
        outcome = store_user(connected, name, mechanism, password, iterations)
    if outcome.holds:
        change = done(name, f"user {name} can authenticate by {mechanism}")
    else:
        change = rejected(f"creating user {name}", outcome)
    return output.conclude_changes(form, "users", [change])


@user.command("list", epilog=examples("tidelog user list", "tidelog user list alice --format json"))
@click.argument("names", metavar="[USER]...", nargs=-1)
@cluster_options()
def list_command(names: tuple[str, ...], bootstrap: str | None, timeout_s: float, form: str) -> int:
    """List users with their mechanisms and iterations; without names, all.

    Exit code 0 means that every named user exists.
    """
    from tidelog.shell.client.administration.users import describe_users

    with connected_cluster(bootstrap, timeout_s) as connected:
        found = describe_users(connected, names)
    for each in found:
        if not each.credentials:
            click.echo(f"tidelog: user {each.user} does not exist", err=True)
    users = [each for each in found if each.credentials]
    if not found and form == "text":
        click.echo("tidelog: no users; create one with `tidelog user create`", err=True)
    data = {
        "users": [
            {"user": each.user, "credentials": [one._asdict() for one in each.credentials]}
            for each in users
        ]
    }
    return output.conclude(
        form, len(users) == len(found), data, lambda screen: _show(screen, users)
    )


@user.command("delete", epilog=examples("tidelog user delete alice"))
@click.argument("name", metavar="USER")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(_MECHANISMS),
    help="Delete only the credential for this mechanism; repeatable.",
)
@cluster_options()
def delete_command(
    name: str, mechanisms: tuple[str, ...], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """Delete a user. Connections that the user has already authenticated stay open."""
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.core.errors import ErrorCode
    from tidelog.shell.client.administration.topics import Outcome
    from tidelog.shell.client.administration.users import delete_user, describe_users

    with connected_cluster(bootstrap, timeout_s) as connected:
        [found] = describe_users(connected, [name])
        wanted = mechanisms or tuple(each.mechanism for each in found.credentials)
        outcomes = delete_user(connected, name, wanted) if wanted else []
    missing = Outcome(name, ErrorCode.RESOURCE_NOT_FOUND, f"user {name} does not exist")
    problems = [each for each in outcomes or [missing] if not each.holds]
    if problems:
        change = rejected(f"deleting user {name}", problems[0])
    else:
        change = done(name, f"deleted user {name}: {', '.join(wanted)}")
    return output.conclude_changes(form, "users", [change])


def _password(name: str, *, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        text = f"password of {name}"
        password = click.prompt(text, type=str, hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise usage_error("the password is empty")
    return str(password)


def _show(screen: "Console", users: "Sequence[User]") -> None:
    table = output.table(("user", "mechanism", "iterations"), numbers=("iterations",))
    for each in users:
        for one in each.credentials:
            table.add_row(each.user, one.mechanism, str(one.iterations))
    if users:
        output.show_table(screen, table)
