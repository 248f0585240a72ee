"""`tidelog transaction`: list, describe and abort transactions, and find those that hang."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    cluster_options,
    complete_topic,
    complete_transaction,
    connected_cluster,
    connected_to_transactions,
)
from tidelog.apps.cli.usage import (
    Section,
    examples,
    one_partition,
    topic_or_partition,
    usage_error,
    yes_option,
)

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.views.transaction import HangingView, OpenTransaction, TransactionView
    from tidelog.shell.client.administration.transactions import ListedTransaction
    from tidelog.shell.client.cluster import Cluster

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
MAX_TIMEOUT = "transaction.max.timeout.ms"
MAX_TIMEOUT_MS = 900_000
"""Kafka's default of `transaction.max.timeout.ms`."""


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog transaction list --state Ongoing",
        "tidelog transaction describe payments-1",
        "tidelog transaction find-hanging",
        "tidelog transaction abort orders/0 --start-offset 1042",
    ),
)
def transaction() -> None:
    """List, describe and abort transactions, and find those that hang (Tidelog or Kafka)."""


@transaction.command(
    "list",
    epilog=examples(
        "tidelog transaction list",
        "tidelog transaction list --state Ongoing --longer-than 1m",
        "tidelog transaction list --pattern 'payments-.*' --format json",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="List only transactional ids in this state; repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="List only the transactional id of this producer; repeatable.",
)
@click.option(
    "--longer-than",
    "duration",
    metavar="DURATION",
    help="List only transactions that are open for longer than DURATION, such as PT1M or 1m.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="List only transactional ids that match a regular expression.",
)
@cluster_options()
def list_command(**given: Any) -> int:
    """List transactional ids with state, producer id and coordinator.

    Exit code 0 means that every broker listed its transactional ids.
    """
    from tidelog.shell.client.administration.transactions import Filters, list_transactions

    longer_ms = _duration_ms(given["duration"])
    filters = Filters(
        given["states"],
        given["producer_ids"],
        -1 if longer_ms is None else longer_ms,
        given["pattern"],
    )
    with connected_cluster(given["bootstrap"], given["timeout_s"]) as cluster:
        found, failed = list_transactions(cluster, filters)
    for error in failed:
        click.echo(f"tidelog: {error}", err=True)
    if not found and given["form"] == "text":
        passed = " that pass the filters" if filters != Filters() else ""
        click.echo(f"tidelog: no transactional ids{passed}", err=True)
    data = {
        "transactions": [each._asdict() for each in found],
        "errors": [str(error) for error in failed],
    }
    return output.conclude(
        given["form"], not failed, data, lambda screen: _show_list(screen, found)
    )


@transaction.command(
    "describe",
    epilog=examples(
        "tidelog transaction describe payments-1",
        "tidelog transaction describe payments-1 payments-2 --format json",
    ),
)
@click.argument(
    "names", metavar="ID...", nargs=-1, required=True, shell_complete=complete_transaction
)
@cluster_options()
def describe_command(
    names: tuple[str, ...], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """Show the state, producer, time-out and partitions of transactional ids.

    START-OFFSET is the transaction's first offset in a partition, from the partition's leader: a
    dash means that nothing is written there, or that a marker has ended it.
    """
    from tidelog.apps.views.transaction import view_transaction

    with connected_to_transactions(bootstrap, timeout_s) as cluster:
        found = [view_transaction(cluster, name) for name in dict.fromkeys(names)]
    data = {"transactions": [each.as_data() for each in found]}
    return output.conclude(form, True, data, lambda screen: _show_described(screen, found))


@transaction.command(
    "find-hanging",
    epilog=examples(
        "tidelog transaction find-hanging",
        "tidelog transaction find-hanging orders payments/0 --longer-than 1m",
        "tidelog transaction find-hanging --broker 2",
    ),
)
@click.argument("names", metavar="[TOPIC[/PARTITION]]...", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--broker",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Search only partitions that have a replica on this broker.",
)
@click.option(
    "--longer-than",
    "duration",
    metavar="DURATION",
    help="Show only transactions without a new record for DURATION, such as PT15M or 15m."
    f"  [default: the brokers' {MAX_TIMEOUT}]",
)
@cluster_options()
def find_hanging_command(**given: Any) -> int:
    """Find transactions that are open in a partition, but that no coordinator will end.

    Consumers that read committed records wait for such a transaction for ever. Searches all topics
    unless some are named. Exit code 0 means: no transaction hangs, and all brokers responded.
    """
    from tidelog.apps.views.transaction import find_hanging

    longer_ms = _duration_ms(given["duration"])
    wanted = [topic_or_partition(text) for text in given["names"]]
    with connected_cluster(given["bootstrap"], given["timeout_s"]) as cluster:
        keys = _partitions(cluster, wanted, given["broker"])
        if longer_ms is None:
            longer_ms = _max_timeout_ms(cluster)
        found = find_hanging(cluster, keys, longer_ms)
    for error in found.errors if given["form"] == "text" else ():
        click.echo(f"tidelog: {error}", err=True)
    return output.conclude(
        given["form"], found.holds, found.as_data(), lambda screen: _show_hanging(screen, found)
    )


@transaction.command(
    "abort",
    epilog=examples(
        "tidelog transaction abort orders/0 --start-offset 1042",
        "tidelog transaction abort orders/0 --producer-id 7 --yes",
        "tidelog transaction abort --id payments-1",
    ),
)
@click.argument("name", metavar="[TOPIC/PARTITION]", required=False, shell_complete=complete_topic)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="First offset of the transaction, as find-hanging shows it.",
)
@click.option(
    "--producer-id",
    type=click.IntRange(min=0),
    metavar="N",
    help="Producer of the transaction.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Abort a transaction that does not hang. If its coordinator commits it, its records in"
    " this partition are lost.",
)
@click.option(
    "--id",
    "transactional_ids",
    multiple=True,
    metavar="ID",
    help="Abort the open transaction of this transactional id, and fence its producer; repeatable.",
)
@yes_option()
@cluster_options()
def abort_command(**given: Any) -> int:
    """Abort a transaction that hangs in a partition, or the open one of a transactional id.

    For a partition: writes an abort marker, which makes later records visible to read-committed
    consumers. For a transactional id: its coordinator aborts, and the producer that used the id
    gets an error at its next request.
    """
    name, ids = given["name"], given["transactional_ids"]
    if bool(name) == bool(ids):
        raise click.UsageError("name either TOPIC/PARTITION or --id")
    if ids:
        return _abort_ids(given, ids)
    return _abort_in_partition(given, name)


def _abort_ids(given: dict[str, Any], ids: Sequence[str]) -> int:
    from tidelog.apps.changes.transaction import abort_ids
    from tidelog.shell.client.administration.transactions import describe_transaction

    for option in ("start_offset", "producer_id"):
        if given[option] is not None:
            raise click.UsageError(f"--{option.replace('_', '-')} is for TOPIC/PARTITION only")
    with connected_to_transactions(given["bootstrap"], given["timeout_s"]) as cluster:
        for each in ids:
            describe_transaction(cluster, each)  # all exist, before the first is fenced
        many = f"{len(ids)} transactional ids"
        _confirm(given["yes"], f"Fence the producer of {ids[0] if len(ids) == 1 else many}?")
        changes = abort_ids(cluster, ids)
    return output.conclude_changes(given["form"], "transactions", changes)


def _abort_in_partition(given: dict[str, Any], name: str) -> int:
    from tidelog.apps.changes.transaction import Target, abort_in_partition, find_target
    from tidelog.core.types import TopicPartition

    topic, partition = one_partition(name)
    start_offset, producer_id = given["start_offset"], given["producer_id"]
    if start_offset is None and producer_id is None:
        raise click.UsageError("give --start-offset or --producer-id")
    target = Target(TopicPartition(topic, partition), start_offset, producer_id)
    with connected_cluster(given["bootstrap"], given["timeout_s"]) as cluster:
        found = find_target(cluster, target, force=given["force"])
        where = f"offset {found.producer.start_offset} of {topic}/{partition}"
        _confirm(given["yes"], f"Abort the transaction at {where}?")
        changes = [abort_in_partition(cluster, found)]
    return output.conclude_changes(given["form"], "transactions", changes)


def _confirm(yes: bool, question: str) -> None:
    """Ask on the terminal, unless --yes is given or there is no terminal."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(question, abort=True, err=True)


# -- values of options -----------------------------------------------------------------------


def _duration_ms(text: str | None) -> int | None:
    from tidelog.apps.cli.records.points_in_time import parse_duration_ms

    if text is None:
        return None
    try:
        return max(parse_duration_ms(text), 0)
    except ValueError as error:
        raise usage_error(str(error)) from error


def _partitions(
    cluster: "Cluster", wanted: Sequence[tuple[str, int | None]], broker: int | None
) -> "list[Any]":
    """Return the partitions to search, internal topics included. Raises NoSuchTopic."""
    from tidelog.core.types import TopicPartition

    if not wanted:
        wanted = [(name, None) for name in sorted(cluster.refresh().topics)]
    keys = [
        TopicPartition(topic, each)
        for topic, number in wanted
        for each in (cluster.topic(topic).partitions if number is None else (number,))
    ]
    return [
        key
        for key in sorted(set(keys))
        if broker is None or broker in cluster.partition(*key).replicas
    ]


def _max_timeout_ms(cluster: "Cluster") -> int:
    """Return the longest time-out of the brokers; Kafka's default if none has the setting."""
    from tidelog.shell.client.admin import broker_configs

    longest = 0
    for broker in cluster.metadata.brokers:
        value = broker_configs(cluster, broker, [MAX_TIMEOUT]).get(MAX_TIMEOUT)
        longest = max(longest, int(value or 0))
    return longest or MAX_TIMEOUT_MS


# -- text output -----------------------------------------------------------------------------


def _show_list(screen: "Console", found: "Sequence[ListedTransaction]") -> None:
    rows = [
        (each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found
    ]
    heading = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
    output.print_columns(screen, heading, rows)


def _show_described(screen: "Console", found: "Sequence[TransactionView]") -> None:
    heading = (
        "TRANSACTIONAL-ID",
        "COORDINATOR",
        "PRODUCER-ID",
        "PRODUCER-EPOCH",
        "STATE",
        "TIMEOUT",
        "STARTED",
        "DURATION",
    )
    rows = []
    for each in found:
        it = each.transaction
        who = (it.transactional_id, it.coordinator, it.producer_id, it.producer_epoch, it.state)
        times = (_seconds(it.timeout_ms), _time(it.start_time_ms), _seconds(each.duration_ms))
        rows.append((*who, *times))
    output.print_columns(screen, heading, rows)
    partitions = [
        (
            each.transaction.transactional_id,
            *partition.key,
            partition.start_offset,
            partition.error or _time(partition.last_timestamp),
        )
        for each in found
        for partition in each.partitions
    ]
    if partitions:
        screen.print()
        parts = ("TRANSACTIONAL-ID", "TOPIC", "PARTITION", "START-OFFSET", "LAST-RECORD")
        output.print_columns(screen, parts, partitions)


def _show_hanging(screen: "Console", found: "HangingView") -> None:
    if found.hanging:
        heading = (
            "TOPIC",
            "PARTITION",
            "START-OFFSET",
            "PRODUCER-ID",
            "PRODUCER-EPOCH",
            "COORDINATOR-EPOCH",
            "LAST-RECORD",
            "DURATION",
            "TRANSACTIONAL-ID",
        )
        output.print_columns(screen, heading, [_hanging_row(each) for each in found.hanging])
    screen.print(output.verdict_line(found.holds, _verdict(found)), soft_wrap=True)


def _hanging_row(each: "OpenTransaction") -> tuple[object, ...]:
    it = each.producer
    epochs = (it.producer_id, it.producer_epoch, it.coordinator_epoch)
    times = (_time(it.last_timestamp), _seconds(each.duration_ms))
    return (*each.key, it.start_offset, *epochs, *times, each.transactional_id)


def _verdict(found: "HangingView") -> str:
    searched = f"{found.searched} partition{'' if found.searched == 1 else 's'} searched"
    if found.hanging:
        first = found.hanging[0]
        return (
            f"{searched}; hanging transactions: {len(found.hanging)}; end them with"
            f" `tidelog transaction abort {first.key.topic}/{first.key.partition}"
            f" --start-offset {first.producer.start_offset}`"
        )
    if found.errors:
        return f"{searched}; not all brokers responded"
    return f"{searched}; no transaction hangs"


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:g}s"


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
