"""`tidelog cluster`: brokers and topics of a running cluster, and its health."""

import click

from tidelog.apps.cli.connection import (
    LAST_RESORT,
    bootstrap_option,
    connected_cluster,
    timeout_option,
)
from tidelog.apps.cli.usage import Section, examples, format_option


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog cluster info",
        f"tidelog cluster health -b {LAST_RESORT}",
        "tidelog cluster brokers --format json",
        "tidelog cluster unregister 3",
    ),
)
def cluster() -> None:
    """Show brokers, topics and health of a running cluster (Tidelog or Kafka)."""


@cluster.command(
    "info",
    epilog=examples("tidelog cluster info", f"tidelog cluster info -b {LAST_RESORT}"),
)
@bootstrap_option()
@timeout_option()
@format_option()
def info_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show the cluster's id, controller, brokers and topics."""
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import cluster as rendering
    from tidelog.apps.views.cluster import view_cluster

    with connected_cluster(bootstrap, timeout_s) as connected:
        summary = view_cluster(connected)
    return output.conclude(
        form, True, summary.as_data(), lambda screen: rendering.show_info(screen, summary)
    )


@cluster.command(
    "health",
    epilog=examples("tidelog cluster health", "tidelog cluster health --format json"),
)
@bootstrap_option()
@timeout_option()
@format_option()
def health_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Find partitions that are offline, under min ISR, under-replicated or damaged.

    Exit code 0 means: there is a controller, every broker responds, and every partition has a
    leader and all replicas in sync and undamaged. Partitions at min ISR and partitions not led by
    their preferred replica are listed, but do not change the exit code.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import cluster as rendering
    from tidelog.apps.views.cluster import view_health

    with connected_cluster(bootstrap, timeout_s) as connected:
        health = view_health(connected)
    return output.conclude(
        form,
        health.holds,
        health.as_data(),
        lambda screen: rendering.show_health(screen, health),
    )


@cluster.command(
    "brokers",
    epilog=examples("tidelog cluster brokers", "tidelog cluster brokers --format json"),
)
@bootstrap_option()
@timeout_option()
@format_option()
def brokers_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show each broker: address, rack, state, epoch, leader and follower counts, log size.

    A broker that is down stays listed as offline until it is unregistered. Exit code 0 means
    that every registered broker is up and responds.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import cluster as rendering
    from tidelog.apps.views.cluster import view_cluster

    with connected_cluster(bootstrap, timeout_s) as connected:
        summary = view_cluster(connected)
    data = {"brokers": summary.as_data()["brokers"]}
    return output.conclude(
        form,
        not summary.unavailable_brokers(),
        data,
        lambda screen: rendering.show_brokers_checked(screen, summary),
    )


@cluster.command(
    "unregister",
    epilog=examples("tidelog cluster unregister 3", "tidelog cluster unregister 3 --format json"),
)
@click.argument("broker", metavar="ID", type=click.IntRange(min=0))
@bootstrap_option()
@timeout_option()
@format_option()
def unregister_command(broker: int, bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Remove the registration of a broker that will not return.

    New topics get no replicas on it. Its existing replicas stay assigned to it; move them with
    `tidelog reassign`. A running broker leaves the cluster, and joins again when it is
    restarted.
    """
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.apps.cli.output import conclude_changes
    from tidelog.shell.client.administration.brokers import unregister_broker

    with connected_cluster(bootstrap, timeout_s) as connected:
        outcome = unregister_broker(connected, broker)
    if outcome.holds:
        change = done(outcome.name, f"broker {broker} is no longer registered")
    else:
        change = rejected(f"unregistering broker {broker}", outcome)
    return conclude_changes(form, "brokers", [change])
