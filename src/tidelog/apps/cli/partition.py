"""`tidelog partition`: every replica of a partition, side by side."""

import click

from tidelog.apps.cli.remote.bootstrap import asked_cluster, bootstrap_option, timeout_option
from tidelog.apps.cli.remote.completing import complete_topic
from tidelog.apps.cli.usage import Section, examples, format_option


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog partition describe orders/0",
        "tidelog partition describe orders --format json",
    ),
)
def partition() -> None:
    """Look into the partitions of a running cluster, replica by replica."""


def _parse_name(ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int | None]:
    topic, slash, number = text.partition("/")
    if not topic or (slash and not number.isdecimal()):
        raise click.UsageError(f"{text!r} is not TOPIC or TOPIC/PARTITION, such as orders/0", ctx)
    return topic, int(number) if slash else None


@partition.command(
    "describe",
    epilog=examples(
        "tidelog partition describe orders/0",
        "tidelog partition describe orders --bootstrap localhost:9092",
        "tidelog partition describe orders/0 --watch",
    ),
)
@click.argument(
    "name", metavar="TOPIC[/PARTITION]", callback=_parse_name, shell_complete=complete_topic
)
@bootstrap_option()
@timeout_option()
@click.option("--watch", is_flag=True, help="Look again every second, until interrupted.")
@format_option()
def describe_command(
    name: tuple[str, int | None], bootstrap: str | None, timeout_s: float, watch: bool, form: str
) -> int:
    """Show where each replica's log begins and ends, its high watermark, epochs and lag.

    Every broker is asked for itself; one that can't be reached is shown as such. Of a Kafka
    only what its protocol tells is shown. Exit code 0 means: somebody leads and every
    replica is in sync.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.remote.partition_report import describe
    from tidelog.apps.cli.views import partition_view

    with asked_cluster(bootstrap, timeout_s) as cluster:
        report = describe(cluster, *name)
        if watch and form == "text":
            report = partition_view.watch(lambda: describe(cluster, *name), report)
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: partition_view.show(screen, report)
    )
