"""`tidelog demo`: a cluster, a killed leader, nothing lost."""

import click

from tidelog.apps.cli.usage import examples, format_option


@click.command(epilog=examples("tidelog demo", "tidelog demo --format json"))
@format_option()
def demo(form: str) -> int:
    """Start three brokers, write with librdkafka, kill the leader, and see what was lost.

    Takes about ten seconds, in a temporary folder and on free ports. Exit code 0 means:
    every acknowledged record is there, once and in order.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.remote.partition_report import describe
    from tidelog.apps.cli.views import partition_view
    from tidelog.apps.demo import PARTITION, TOPIC, run
    from tidelog.shell.client.cluster import Cluster

    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise click.ClickException(
            "the demo writes with librdkafka: pip install confluent-kafka"
        ) from None
    text = form == "text"
    screen = output.screen()

    def say(step: str) -> None:
        if text:
            screen.print(f"• {step}")

    def look(bootstrap: str) -> None:
        if text:
            with Cluster(bootstrap) as cluster:
                partition_view.show(screen, describe(cluster, TOPIC, PARTITION))

    found = run(say, look)
    verdict = (
        f"{found.acknowledged:,} acknowledged: {len(found.lost)} lost,"
        f" {found.repeated} duplicated, {found.out_of_order} out of order"
    )
    return output.conclude(
        form,
        found.holds,
        found.as_data(),
        lambda screen: screen.print(output.verdict_line(found.holds, verdict)),
    )
