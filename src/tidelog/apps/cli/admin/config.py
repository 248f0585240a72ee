"""`tidelog config`: the settings of topics and brokers of a running cluster."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.admin import arguments
from tidelog.apps.cli.admin.outcomes import conclude_changes
from tidelog.apps.cli.remote.bootstrap import asked_cluster, bootstrap_option, timeout_option
from tidelog.apps.cli.remote.completing import complete_broker, complete_topic
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
    """Look at and change settings of topics and brokers: of Tidelog, or of any Kafka."""


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    complete = complete_topic if ctx.params.get("kind") == TOPIC else complete_broker
    return complete(ctx, param, incomplete)


def _whose_arguments(command: F) -> F:
    """`topic NAME`, `broker ID`, or `brokers`."""
    kind = click.argument("kind", metavar="WHOSE", type=click.Choice([TOPIC, BROKER, BROKERS]))
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
@_whose_arguments
@click.option("--all", "everything", is_flag=True, help="Also settings at their default.")
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Only this one; any number of times."
)
@click.option("--doc", "documented", is_flag=True, help="Say what each setting does.")
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
    """Show settings, where each comes from, and what stands behind it.

    WHOSE is `topic NAME`, `broker ID`, or `brokers`: what was changed for all brokers while
    they ran. Without --all or --key, settings at their default are left out. `kafka` is the
    layout of Kafka's own tool.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.admin import config_view
    from tidelog.shell.client.administration.configs import describe_configs

    with asked_cluster(bootstrap, timeout_s) as cluster:
        whose = _resource(cluster, kind, name)
        found = describe_configs(cluster, [whose], documentation=documented)[whose]
        known = [each.name for each in found]
        if kind != BROKERS:  # of all brokers only what was changed is told
            for key in keys:
                if key not in known:
                    raise click.UsageError(
                        f"no setting of a {kind} is called {key!r}; {_near_key(key, known)}",
                        click.get_current_context(),
                    )
    if keys:
        found = [each for each in found if each.name in keys]
    elif not everything:
        found = [each for each in found if not each.is_default]
    return output.conclude(
        form,
        True,
        {"whose": {"kind": kind, "name": whose.name}, "configs": config_view.as_data(found)},
        lambda screen: config_view.show(screen, whose, found, form, everything=everything),
    )


def _near_key(key: str, known: list[str]) -> str:
    return nearest(key, known) or "--all lists them"


@config.command(
    "alter",
    epilog=examples(
        "tidelog config alter topic orders --set retention.ms=86400000 --delete segment.bytes",
        "tidelog config alter topic orders --append cleanup.policy=compact",
        "tidelog config alter brokers --set message.max.bytes=2000000 --dry-run",
    ),
)
@_whose_arguments
@arguments.config_option("--set", help_text="A setting to change; any number of times.")
@click.option(
    "--delete", "unset", multiple=True, metavar="KEY", help="A setting to take back; likewise."
)
@click.option(
    "--append",
    multiple=True,
    callback=arguments.read_settings,
    metavar="KEY=VALUE",
    help="What to add to a list; likewise.",
)
@click.option(
    "--subtract",
    multiple=True,
    callback=arguments.read_settings,
    metavar="KEY=VALUE",
    help="What to take out of a list; likewise.",
)
@click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
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
    """Change settings, all or none of them.

    WHOSE is `topic NAME`, `broker ID`, or `brokers` for all of them.
    """
    from tidelog.apps.cli.admin.outcomes import done, near_keys, refused
    from tidelog.shell.client.administration import configs

    keys = [*settings, *unset, *append, *subtract]
    _check_keys(keys)
    wanted = [configs.ConfigChange(configs.SET, *each) for each in settings.items()]
    wanted += [configs.ConfigChange(configs.DELETE, key) for key in unset]
    wanted += [configs.ConfigChange(configs.APPEND, *each) for each in append.items()]
    wanted += [configs.ConfigChange(configs.SUBTRACT, *each) for each in subtract.items()]
    with asked_cluster(bootstrap, timeout_s) as cluster:
        whose = _resource(cluster, kind, name)
        outcome = configs.alter_configs(cluster, whose, wanted, validate_only=dry_run)
        if outcome.holds:
            text = "can be changed" if dry_run else "changed"
            change = done(str(whose), f"{whose}: {text}: {', '.join(dict.fromkeys(keys))}")
        else:
            hint = near_keys(keys, _known_keys(cluster, whose))
            change = refused(f"changing settings of {whose}", outcome, hint)
    return conclude_changes(form, "changes", [change], dry_run=dry_run)


def _check_keys(keys: list[str]) -> None:
    context = click.get_current_context()
    if not keys:
        raise click.UsageError("nothing to change; give --set or --delete", context)
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise click.UsageError(f"{twice[0]} is changed in two ways; choose one", context)


def _resource(cluster: "Cluster", kind: str, name: str | None) -> "Resource":
    """Whom the command line means. Raises UsageError."""
    from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
    from tidelog.shell.client.administration.configs import Resource

    context = click.get_current_context()
    if kind == BROKERS:
        if name is not None:
            raise click.UsageError(
                f"brokers means all of them; for one write: broker {name}", context
            )
        return Resource(BROKER_RESOURCE, "")
    if name is None:
        raise click.UsageError(f"which {kind}? Write: {kind} {kind.upper()}", context)
    if kind == BROKER:
        known = [str(each) for each in cluster.metadata.brokers]
        if name not in known:
            raise click.UsageError(
                f"no broker {name!r} in the cluster; {near(name, known)}", context
            )
        return Resource(BROKER_RESOURCE, name)
    cluster.topic(name)  # raises NoSuchTopic
    return Resource(TOPIC_RESOURCE, name)


def _known_keys(cluster: "Cluster", whose: "Resource") -> list[str]:
    """The settings that there are: of all brokers as many as of one."""
    from tidelog.shell.client.admin import TOPIC_RESOURCE
    from tidelog.shell.client.administration.configs import describe_configs

    if whose.kind != TOPIC_RESOURCE and not whose.name:
        whose = whose._replace(name=str(min(cluster.metadata.brokers)))
    return [each.name for each in describe_configs(cluster, [whose])[whose]]
