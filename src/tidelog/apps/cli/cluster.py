"""`tidelog cluster`: who is in a running cluster, and whether its partitions are safe."""

import click

from tidelog.apps.cli.remote.bootstrap import (
    LAST_RESORT,
    asked_cluster,
    bootstrap_option,
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
    """Look at a running cluster: Tidelog's, or any Kafka."""


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
    from tidelog.apps.cli.remote.cluster_report import summarize
    from tidelog.apps.cli.views import cluster_view

    with asked_cluster(bootstrap, timeout_s) as asked:
        summary = summarize(asked)
    return output.conclude(
        form, True, summary.as_data(), lambda screen: cluster_view.show_info(screen, summary)
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

    Exit code 0 means: there is a controller, every broker answers, every partition has a
    leader and all its replicas in sync and sound. Partitions at min ISR, and those not led by their
    preferred replica, are told but are no fault.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.remote.cluster_report import examine
    from tidelog.apps.cli.views import cluster_view

    with asked_cluster(bootstrap, timeout_s) as asked:
        health = examine(asked)
    return output.conclude(
        form,
        health.holds,
        health.as_data(),
        lambda screen: cluster_view.show_health(screen, health),
    )


@cluster.command(
    "brokers",
    epilog=examples("tidelog cluster brokers", "tidelog cluster brokers --format json"),
)
@bootstrap_option()
@timeout_option()
@format_option()
def brokers_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show each broker: address, rack, epoch, what it leads and follows, its log size.

    A broker that is down stays listed as offline until it is unregistered. Exit code 0 means
    that every registered broker is up and answers.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.remote.cluster_report import summarize
    from tidelog.apps.cli.views import cluster_view

    with asked_cluster(bootstrap, timeout_s) as asked:
        summary = summarize(asked)
    data = {"brokers": summary.as_data()["brokers"]}
    return output.conclude(
        form,
        not summary.away(),
        data,
        lambda screen: cluster_view.show_brokers_judged(screen, summary),
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

    New topics get no replicas on it from then on. Its existing replicas stay assigned to it;
    move them with `tidelog reassign`. A broker that is running leaves the cluster, and joins
    again when it is restarted.
    """
    from tidelog.apps.cli.admin.outcomes import conclude_changes, done, refused
    from tidelog.shell.client.administration.brokers import unregister_broker

    with asked_cluster(bootstrap, timeout_s) as asked:
        outcome = unregister_broker(asked, broker)
    if outcome.holds:
        change = done(outcome.name, f"broker {broker} is no longer registered")
    else:
        change = refused(f"unregistering broker {broker}", outcome)
    return conclude_changes(form, "brokers", [change])
