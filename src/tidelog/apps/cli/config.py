"""`tidelog config`: describe and alter configs of topics and brokers of a running cluster."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import arguments
from tidelog.apps.cli.connection import (
    bootstrap_option,
    complete_broker,
    complete_topic,
    connected_cluster,
    timeout_option,
)
from tidelog.apps.cli.usage import F, Section, examples, format_option
from tidelog.apps.near_names import near, nearest

if TYPE_CHECKING:
    from tidelog.shell.client.administration.configs import Resource
    from tidelog.shell.client.cluster import Cluster

TOPIC, BROKER, BROKERS = "topic", "broker", "brokers"


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
@bootstrap_option()
@timeout_option()
@format_option("kafka")
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
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import config as rendering
    from tidelog.apps.views.config import configs_as_data, view_configs

    with connected_cluster(bootstrap, timeout_s) as cluster:
        resource = _resource(cluster, kind, name)
        found = view_configs(cluster, resource, documentation=documented)
        known = [each.name for each in found]
        if kind != BROKERS:  # for all brokers only dynamic configs are returned
            for key in keys:
                if key not in known:
                    raise click.UsageError(
                        f"a {kind} has no config {key!r}; {_near_key(key, known)}",
                        click.get_current_context(),
                    )
    if keys:
        found = [each for each in found if each.name in keys]
    elif not everything:
        found = [each for each in found if not each.is_default]
    return output.conclude(
        form,
        True,
        {"whose": {"kind": kind, "name": resource.name}, "configs": configs_as_data(found)},
        lambda screen: rendering.show(screen, resource, found, form, everything=everything),
    )


def _near_key(key: str, known: list[str]) -> str:
    return nearest(key, known) or "--all lists the configs"


@config.command(
    "alter",
    epilog=examples(
        "tidelog config alter topic orders --set retention.ms=86400000 --delete segment.bytes",
        "tidelog config alter topic orders --append cleanup.policy=compact",
        "tidelog config alter brokers --set message.max.bytes=2000000 --dry-run",
    ),
)
@_resource_arguments
@arguments.config_option("--set", help_text="Set a config; repeatable.")
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
    callback=arguments.read_settings,
    metavar="KEY=VALUE",
    help="Add a value to a list; repeatable.",
)
@click.option(
    "--subtract",
    multiple=True,
    callback=arguments.read_settings,
    metavar="KEY=VALUE",
    help="Remove a value from a list; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Validate the request, change nothing.")
@bootstrap_option()
@timeout_option()
@format_option()
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
    from tidelog.apps.cli.output import conclude_changes
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
    return conclude_changes(form, "changes", [change], dry_run=dry_run)


def _check_keys(keys: list[str]) -> None:
    context = click.get_current_context()
    if not keys:
        raise click.UsageError(
            "nothing to change; use --set, --delete, --append or --subtract", context
        )
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise click.UsageError(f"{twice[0]} is changed by two options; remove one", context)


def _resource(cluster: "Cluster", kind: str, name: str | None) -> "Resource":
    """Return the topic or broker that the command line names. Raises UsageError."""
    from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
    from tidelog.shell.client.administration.configs import Resource

    context = click.get_current_context()
    if kind == BROKERS:
        if name is not None:
            raise click.UsageError(
                f"`brokers` means all brokers; for one write: broker {name}", context
            )
        return Resource(BROKER_RESOURCE, "")
    if name is None:
        raise click.UsageError(
            f"name the {kind}: {kind} {'ID' if kind == BROKER else 'NAME'}", context
        )
    if kind == BROKER:
        known = [str(each) for each in cluster.metadata.brokers]
        if name not in known:
            raise click.UsageError(
                f"broker {name!r} is not in the cluster; {near(name, known)}", context
            )
        return Resource(BROKER_RESOURCE, name)
    cluster.topic(name)  # raises NoSuchTopic
    return Resource(TOPIC_RESOURCE, name)


def _known_keys(cluster: "Cluster", resource: "Resource") -> list[str]:
    """Return the names of all configs; for all brokers those of one broker."""
    from tidelog.apps.views.config import view_configs
    from tidelog.shell.client.admin import TOPIC_RESOURCE

    if resource.kind != TOPIC_RESOURCE and not resource.name:
        resource = resource._replace(name=str(min(cluster.metadata.brokers)))
    return [each.name for each in view_configs(cluster, resource)]
