"""`tidelog config`: describe and alter configs of topics and brokers of a running cluster.

Invariant: a value that the broker hides is shown as hidden, never as empty.
"""

from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output, usage
from tidelog.apps.cli.connection import (
    cluster_options,
    complete_broker,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import F, Section, examples, usage_error
from tidelog.apps.near_names import near, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.client.administration.configs import ConfigEntry, Resource
    from tidelog.shell.client.cluster import Cluster

TOPIC, BROKER, BROKERS = "topic", "broker", "brokers"
HIDDEN, NO_VALUE = "(hidden)", "(none)"


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog config describe topic orders",
        "tidelog config alter topic orders --set retention.ms=86400000",
        "tidelog config describe broker 1 --all",
    ),
)
def config() -> None:
    """Describe and alter configs of topics and brokers (Tidelog or Kafka)."""


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    complete = complete_topic if ctx.params.get("kind") == TOPIC else complete_broker
    return complete(ctx, param, incomplete)


def _resource_arguments(command: F) -> F:
    """Add the arguments `topic NAME`, `broker ID`, or `brokers`."""
    kind = click.argument("kind", metavar="KIND", type=click.Choice([TOPIC, BROKER, BROKERS]))
    name = click.argument("name", required=False, shell_complete=_complete_name)
    return kind(name(command))


@config.command(
    "describe",
    epilog=examples(
        "tidelog config describe topic orders",
        "tidelog config describe topic orders --key retention.ms --doc",
        "tidelog config describe broker 1 --all",
        "tidelog config describe brokers --format json",
    ),
)
@_resource_arguments
@click.option("--all", "everything", is_flag=True, help="Also show configs at their default.")
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Show only this config; repeatable."
)
@click.option("--doc", "documented", is_flag=True, help="Show the documentation of each config.")
@cluster_options("kafka")
def describe_command(
    kind: str,
    name: str | None,
    everything: bool,
    keys: tuple[str, ...],
    documented: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Show configs, their sources, and the values that apply if they are deleted.

    Write `topic NAME`, `broker ID`, or `brokers` for dynamic configs of all brokers. Without
    --all or --key, configs at their default are left out. `--format kafka` prints the layout of
    kafka-configs.
    """

    with connected_cluster(bootstrap, timeout_s) as cluster:
        resource = _resource(cluster, kind, name)
        found = _view_configs(cluster, resource, documentation=documented)
        known = [each.name for each in found]
        if kind != BROKERS:  # for all brokers only dynamic configs are returned
            for key in keys:
                if key not in known:
                    hint = nearest(key, known) or "--all lists the configs"
                    raise usage_error(f"a {kind} has no config {key!r}; {hint}")
    if keys:
        found = [each for each in found if each.name in keys]
    elif not everything:
        found = [each for each in found if not each.is_default]
    return output.conclude(
        form,
        True,
        {
            "whose": {"kind": kind, "name": resource.name},
            "configs": [_as_data(each) for each in found],
        },
        lambda screen: show_configs(screen, resource, found, form, everything=everything),
    )


def _view_configs(
    cluster: "Cluster", resource: "Resource", *, documentation: bool = False
) -> "list[ConfigEntry]":
    """Return all configs of a topic, of a broker, or of all brokers. Raises ClientError."""
    from tidelog.shell.client.administration.configs import describe_configs

    return describe_configs(cluster, [resource], documentation=documentation)[resource]


def _as_data(entry: "ConfigEntry") -> dict[str, Any]:
    return {**entry._asdict(), "synonyms": [synonym._asdict() for synonym in entry.synonyms]}


@config.command(
    "alter",
    epilog=examples(
        "tidelog config alter topic orders --set retention.ms=86400000 --delete segment.bytes",
        "tidelog config alter topic orders --append cleanup.policy=compact",
        "tidelog config alter brokers --set message.max.bytes=2000000 --dry-run",
    ),
)
@_resource_arguments
@usage.config_option("--set", help_text="Set a config; repeatable.")
@click.option(
    "--delete",
    "unset",
    multiple=True,
    metavar="KEY",
    help="Delete a config, so that its default applies; repeatable.",
)
@click.option(
    "--append",
    multiple=True,
    callback=usage.read_settings,
    metavar="KEY=VALUE",
    help="Add a value to a list; repeatable.",
)
@click.option(
    "--subtract",
    multiple=True,
    callback=usage.read_settings,
    metavar="KEY=VALUE",
    help="Remove a value from a list; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Validate the request, change nothing.")
@cluster_options()
def alter_command(
    kind: str,
    name: str | None,
    settings: dict[str, str],
    unset: tuple[str, ...],
    append: dict[str, str],
    subtract: dict[str, str],
    dry_run: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Change configs, all or none of them.

    Write `topic NAME`, `broker ID`, or `brokers` for all brokers.
    """
    from tidelog.apps.changes.outcome import done, near_keys, rejected
    from tidelog.shell.client.administration import configs

    keys = [*settings, *unset, *append, *subtract]
    _check_keys(keys)
    wanted = [configs.ConfigChange(configs.SET, *each) for each in settings.items()]
    wanted += [configs.ConfigChange(configs.DELETE, key) for key in unset]
    wanted += [configs.ConfigChange(configs.APPEND, *each) for each in append.items()]
    wanted += [configs.ConfigChange(configs.SUBTRACT, *each) for each in subtract.items()]
    with connected_cluster(bootstrap, timeout_s) as cluster:
        resource = _resource(cluster, kind, name)
        outcome = configs.alter_configs(cluster, resource, wanted, validate_only=dry_run)
        if outcome.holds:
            text = "can be changed" if dry_run else "changed"
            change = done(str(resource), f"{resource}: {text}: {', '.join(dict.fromkeys(keys))}")
        else:
            hint = near_keys(keys, _known_keys(cluster, resource))
            change = rejected(f"changing configs of {resource}", outcome, hint)
    return output.conclude_changes(form, "changes", [change], dry_run=dry_run)


def _check_keys(keys: list[str]) -> None:
    if not keys:
        raise usage_error("nothing to change; use --set, --delete, --append or --subtract")
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise usage_error(f"{twice[0]} is changed by two options; remove one")


def _resource(cluster: "Cluster", kind: str, name: str | None) -> "Resource":
    """Return the topic or broker that the command line names. Raises UsageError."""
    from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
    from tidelog.shell.client.administration.configs import Resource

    if kind == BROKERS:
        if name is not None:
            raise usage_error(f"`brokers` means all brokers; for one write: broker {name}")
        return Resource(BROKER_RESOURCE, "")
    if name is None:
        raise usage_error(f"name the {kind}: {kind} {'ID' if kind == BROKER else 'NAME'}")
    if kind == BROKER:
        known = [str(each) for each in cluster.metadata.brokers]
        if name not in known:
            raise usage_error(f"broker {name!r} is not in the cluster; {near(name, known)}")
        return Resource(BROKER_RESOURCE, name)
    cluster.topic(name)  # raises NoSuchTopic
    return Resource(TOPIC_RESOURCE, name)


def _known_keys(cluster: "Cluster", resource: "Resource") -> list[str]:
    """Return the names of all configs; for all brokers those of one broker."""
    from tidelog.shell.client.admin import TOPIC_RESOURCE

    if resource.kind != TOPIC_RESOURCE and not resource.name:
        resource = resource._replace(name=str(min(cluster.metadata.brokers)))
    return [each.name for each in _view_configs(cluster, resource)]


# -- text output -----------------------------------------------------------------------------


def show_configs(
    screen: "Console",
    resource: "Resource",
    entries: "list[ConfigEntry]",
    form: str,
    *,
    everything: bool,
) -> None:
    """Print the configs of one topic or broker."""
    if form == "kafka":
        _show_as_kafka(resource, entries, everything)
        return
    table = output.table(("KEY", "VALUE", "SOURCE", "OVERRIDES"))
    for column in table.columns:
        column.overflow = "fold"  # never cut a value
        column.no_wrap = column.header in ("KEY", "SOURCE")
    documented = any(each.documentation for each in entries)
    for each in entries:
        behind = "\n".join(f"{s.name}={s.value} ({s.source})" for s in each.synonyms[1:])
        table.add_row(each.name, _value(each), each.source, behind)
    if entries and not documented:
        output.show_table(screen, table)
    elif entries:
        for each in entries:
            _show_documented(screen, each)
    else:
        screen.print(
            output.faint(f"{resource}: all configs are at their defaults; --all shows them")
        )


def _show_documented(screen: "Console", each: "ConfigEntry") -> None:
    screen.print(output.heading(f"{each.name}={_value(each)}"), soft_wrap=True)
    kind = "" if each.type is None else f", {each.type}"
    fixed = ", read-only" if each.read_only else ""
    screen.print(output.indented(output.faint(f"{each.source}{kind}{fixed}")))
    for synonym in each.synonyms[1:]:
        text = f"overrides {synonym.name}={synonym.value} ({synonym.source})"
        screen.print(output.indented(output.faint(text)))
    if each.documentation:
        screen.print(output.indented(each.documentation))


def _show_as_kafka(resource: "Resource", entries: "list[ConfigEntry]", everything: bool) -> None:
    """Print what kafka-configs prints: without --all, only dynamic configs of this resource."""
    if resource.name:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {resource} are:")
    else:
        click.echo("Default configs for brokers in the cluster are:")
    for each in entries:
        if everything or each.source == resource.own_source:
            click.echo(kafka_line(each))


def _value(each: "ConfigEntry") -> str:
    if each.value is not None:
        return each.value
    return HIDDEN if each.sensitive else NO_VALUE


def kafka_line(each: "ConfigEntry") -> str:
    """Return the line of a config, as kafka-configs --describe prints it."""
    value = "null" if each.value is None else each.value
    synonyms = ", ".join(
        f"{one.source}:{one.name}={'null' if one.value is None else one.value}"
        for one in each.synonyms
    )
    sensitive = str(each.sensitive).lower()
    return f"  {each.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"
