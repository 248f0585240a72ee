"""`tidelog quota`: how much clients may use."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, connected_cluster
from tidelog.apps.cli.usage import F, Section, examples, usage_error
from tidelog.core.quotas.entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.client.administration.quotas import EntityQuotas

KEYS = {
    "producer_byte_rate": PRODUCER_BYTE_RATE,
    "consumer_byte_rate": CONSUMER_BYTE_RATE,
    "request_percentage": REQUEST_PERCENTAGE,
    "controller_mutation_rate": CONTROLLER_MUTATION_RATE,
    "connection_creation_rate": CONNECTION_CREATION_RATE,
}
"""The quotas by the names of their options."""
Parts: TypeAlias = dict[str, str | None]
"""An entity: names by type; None is the default."""
_COLUMNS = ("user", "client id", "ip", "quota", "value")


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog quota set --user alice --producer-byte-rate 1000000",
        "tidelog quota list",
        "tidelog quota remove --user alice --producer-byte-rate",
    ),
)
def quota() -> None:
    """List, set and remove client quotas."""


def _entity_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name an entity; the command gets it as `parts`."""
    options = (
        click.option("--user", metavar="NAME", help="User; `ANONYMOUS` without authentication."),
        click.option("--default-user", is_flag=True, help="Every user without a quota."),
        click.option("--client-id", metavar="NAME", help="Client id."),
        click.option("--default-client-id", is_flag=True, help="Every client id without a quota."),
        click.option("--ip", metavar="ADDRESS", help="Address of clients."),
        click.option("--default-ip", is_flag=True, help="Every address without a quota."),
    )

    @wraps(command)
    def with_parts(**values: Any) -> int:
        parts: Parts = {}
        for kind in (USER, CLIENT_ID, IP):
            option = kind.replace("-", "_")
            name, is_default = values.pop(option), values.pop(f"default_{option}")
            if name is not None and is_default:
                raise usage_error(f"--{kind} and --default-{kind} exclude each other")
            if name is not None or is_default:
                parts[kind] = name
        return command(parts=parts, **values)

    for option in reversed(options):
        with_parts = option(with_parts)
    return with_parts


def _key_options(add: Callable[[str, str], Callable[[F], F]]) -> Callable[[F], F]:
    texts = {
        "producer-byte-rate": "Bytes a second that a client produces at one broker.",
        "consumer-byte-rate": "Bytes a second that a client fetches from one broker.",
        "request-percentage": "Percent of a broker's request thread.",
        "controller-mutation-rate": "Partitions a second that are created or deleted.",
        "connection-creation-rate": "New connections a second of an ip at one broker.",
    }

    def decorate(command: F) -> F:
        for name, text in reversed(texts.items()):
            command = add(f"--{name}", text)(command)
        return command

    return decorate


@quota.command(
    "set",
    epilog=examples(
        "tidelog quota set --user alice --producer-byte-rate 1000000",
        "tidelog quota set --default-client-id --request-percentage 20",
        "tidelog quota set --ip 10.0.0.1 --connection-creation-rate 5",
    ),
)
@_entity_options
@_key_options(lambda name, text: click.option(name, type=float, metavar="N", help=text))
@cluster_options()
def set_command(
    parts: Parts,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
    **values: float | None,
) -> int:
    """Set quotas of a user, a client id, a user with a client id, or an address.

    Every broker enforces the quota on its own, a moment after it was set.
    """
    changes = {KEYS[name]: value for name, value in values.items() if value is not None}
    return _change(parts, changes, bootstrap, timeout_s, form)


@quota.command(
    "remove",
    epilog=examples(
        "tidelog quota remove --user alice --producer-byte-rate",
        "tidelog quota remove --default-client-id --request-percentage",
    ),
)
@_entity_options
@_key_options(lambda name, text: click.option(name, is_flag=True, help=text))
@cluster_options()
def remove_command(
    parts: Parts,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
    **chosen: bool,
) -> int:
    """Remove quotas of an entity."""
    changes = {KEYS[name]: None for name, is_chosen in chosen.items() if is_chosen}
    return _change(parts, changes, bootstrap, timeout_s, form)


def _change(
    parts: Parts,
    changes: "dict[str, float] | dict[str, None]",
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.shell.client.administration.quotas import alter_quotas, spelled

    if not parts:
        raise usage_error("name the clients: --user, --client-id, --ip, or a default")
    if not changes:
        raise usage_error("name a quota, for example --producer-byte-rate")
    with connected_cluster(bootstrap, timeout_s) as connected:
        outcome = alter_quotas(connected, parts, changes)
    who = spelled(tuple(parts.items()))
    if outcome.holds:
        spelt = ", ".join(
            f"removed {key}" if value is None else f"{key} is {_number(value)}"
            for key, value in changes.items()
        )
        change = done(who, f"{who}: {spelt}")
    else:
        change = rejected(f"changing quotas of {who}", outcome)
    return output.conclude_changes(form, "quotas", [change])


@quota.command(
    "list",
    epilog=examples("tidelog quota list", "tidelog quota list --user alice --format json"),
)
@_entity_options
@cluster_options()
def list_command(
    parts: Parts,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """List quotas; without options, all."""
    from tidelog.shell.client.administration.quotas import describe_quotas

    with connected_cluster(bootstrap, timeout_s) as connected:
        found = describe_quotas(connected, parts)
    if not found and form == "text":
        click.echo("tidelog: no quotas; set one with `tidelog quota set`", err=True)
    data = {"quotas": [{"entity": dict(each.entity), "quotas": each.quotas} for each in found]}
    return output.conclude(form, True, data, lambda screen: _show(screen, found))


def _show(screen: "Console", found: "Sequence[EntityQuotas]") -> None:
    table = output.table(_COLUMNS, numbers=("value",))
    for entity, quotas in found:
        parts = {kind: "<default>" if name is None else name for kind, name in entity}
        who = [parts.get(kind, "") for kind in (USER, CLIENT_ID, IP)]
        for key, value in quotas.items():
            table.add_row(*who, key, _number(value))
    if found:
        output.show_table(screen, table)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
