"""`tidelog log-dir`: the log directories of brokers, and moves of replicas between them."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    cluster_options,
    complete_broker,
    complete_topic,
    connected_cluster,
    moves_wait_option,
)
from tidelog.apps.cli.usage import Section, examples, one_partition

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.changes.log_dir_move import Progress
    from tidelog.apps.views.log_dirs import LogDirsView


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog log-dir list",
        "tidelog log-dir list --broker 2",
        "tidelog log-dir move orders/0 --broker 2 --to /disk2/broker-2",
    ),
)
def log_dir() -> None:
    """Show the log directories of brokers, and move replicas between them (Tidelog or Kafka)."""


@log_dir.command(
    "list",
    epilog=examples("tidelog log-dir list", "tidelog log-dir list --broker 2 --format json"),
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    type=click.IntRange(0),
    metavar="ID",
    shell_complete=complete_broker,
    help="Only directories of this broker; repeatable.",
)
@cluster_options()
def list_command(
    brokers: tuple[int, ...], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """List log directories: state, replicas, their size, and the free space of the disk.

    Exit code 0 means that every broker responded and no directory has failed. The replicas of a
    failed directory are offline until the broker is restarted with a working disk.
    """
    from tidelog.apps.views.log_dirs import view_log_dirs

    with connected_cluster(bootstrap, timeout_s) as cluster:
        known = sorted(cluster.refresh([]).brokers)
        view = view_log_dirs(cluster, brokers or known)
    return output.conclude(form, view.holds, view.as_data(), lambda screen: _show(screen, view))


def _show(screen: "Console", view: "LogDirsView") -> None:
    rows = [
        (
            each.broker,
            each.path,
            "failed" if each.error else "online",
            sum(not one.is_copy for one in each.replicas),
            sum(one.is_copy for one in each.replicas),
            output.size(sum(one.size for one in each.replicas)),
            _size(each.usable_bytes),
            _size(each.total_bytes),
        )
        for each in view.log_dirs
    ]
    heading = (
        "BROKER", "LOG-DIR", "STATE", "REPLICAS", "ARRIVING", "LOGS", "DISK-FREE", "DISK-SIZE",
    )  # fmt: skip
    output.print_columns(screen, heading, rows)
    for broker, why in view.unreachable.items():
        screen.print(f"broker {broker}: {why}", soft_wrap=True)
    screen.print(output.verdict_line(view.holds, _summary(view)), soft_wrap=True)


def _summary(view: "LogDirsView") -> str:
    if view.failed:
        return (
            f"failed directories: {len(view.failed)}; their replicas are offline until the broker"
            " is restarted with a working disk"
        )
    if view.unreachable:
        return f"brokers that did not respond: {len(view.unreachable)}"
    return "all log directories are online"


def _size(count: int | None) -> str:
    return output.UNKNOWN if count is None else output.size(count)


@log_dir.command(
    "move",
    epilog=examples(
        "tidelog log-dir move orders/0 --broker 2 --to /disk2/broker-2",
        "tidelog log-dir move orders/0 orders/1 --broker 2 --to /disk2/broker-2 --wait 60",
    ),
)
@click.argument(
    "partitions",
    metavar="TOPIC/PARTITION...",
    nargs=-1,
    required=True,
    shell_complete=complete_topic,
)
@click.option(
    "--broker",
    required=True,
    type=click.IntRange(0),
    metavar="ID",
    shell_complete=complete_broker,
    help="The broker that has the replicas.",
)
@click.option(
    "--to", "path", required=True, metavar="DIR", help="One of the broker's log directories."
)
@moves_wait_option()
@cluster_options()
def move_command(
    partitions: tuple[str, ...],
    broker: int,
    path: str,
    wait_s: float,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Move replicas of a broker to another of its log directories, while they serve.

    The replica stays in its directory until the copy has all of its records. A move ends if the
    broker stops; run the command again then. With the directory in which a replica is, a move of
    it is cancelled. Exit code 0 means that all replicas are in the directory.
    """
    from tidelog.apps.changes.log_dir_move import move
    from tidelog.core.types import TopicPartition

    keys = [TopicPartition(*one_partition(each)) for each in dict.fromkeys(partitions)]
    with (
        connected_cluster(bootstrap, timeout_s) as cluster,
        output.progress("moving replicas", len(keys)) as show_progress,
    ):
        cluster.refresh([])

        def report(now: "Progress") -> None:
            show_progress(now.moved, f"copied {output.size(now.copied)}")

        changes = move(cluster, broker, path, keys, wait_s, report)
    return output.conclude_changes(form, "partitions", changes)
