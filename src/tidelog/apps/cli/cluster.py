"""`tidelog cluster`: who is in a running cluster, and whether its partitions are safe."""

import click

from tidelog.apps.cli.remote.bootstrap import asked_cluster, bootstrap_option, timeout_option
from tidelog.apps.cli.usage import Section, examples, format_option


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog cluster info",
        "tidelog cluster health --bootstrap localhost:9092",
        "tidelog cluster brokers --format json",
    ),
)
def cluster() -> None:
    """Look at a running cluster: Tidelog's, or any Kafka."""


@cluster.command(
    "info",
    epilog=examples("tidelog cluster info", "tidelog cluster info --bootstrap localhost:9092"),
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
    """Find partitions that are offline, under min ISR or under-replicated.

    Exit code 0 means: there is a controller, every broker answers, every partition has a
    leader and all its replicas in sync. Partitions at min ISR, and those not led by their
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

    Exit code 0 means that every broker is in the cluster and answers.
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
