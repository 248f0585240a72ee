"""Text output of `tidelog topic`: the lines of kafka-topics, and tables.

Invariant: the fields of Kafka's lines are separated by tabs, as scripts expect, at any screen
width.
"""

from collections.abc import Callable, Iterable, Sequence

import click
from rich.console import Console

from tidelog.apps.cli import output
from tidelog.apps.views.topic import TopicPartitionView, TopicSummary, TopicView

UNKNOWN = "–"
NOT_AVAILABLE = "N/A"


def show_list(screen: Console, topics: Sequence[TopicSummary]) -> None:
    """Print a line for each topic, and the totals."""
    numbers = ("PARTITIONS", "REPLICAS")
    table = output.table(("NAME", *numbers, ""), numbers=numbers)
    for topic in topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if topics:
        output.show_table(screen, table)
    partitions = sum(topic.partitions for topic in topics)
    screen.print(output.faint(f"topics: {len(topics)}, partitions: {partitions}"))


def show_topics(screen: Console, topics: Sequence[TopicView], form: str, *, headed: bool) -> None:
    """Print Kafka's lines, a table, or both (form `text`). kafka-topics omits the line of the topic
    itself if there are filters: then `headed` is false."""
    for number, topic in enumerate(topics):
        if form != "table":
            if headed:
                click.echo(topic_line(topic))
            for each in topic.partitions:
                click.echo(partition_line(each))
        if form != "kafka":
            screen.print(output.heading(topic.name if form == "table" else ""))
            _show_partitions(screen, topic.partitions)
            if number + 1 < len(topics):
                screen.print()
    if not topics and form != "kafka":
        screen.print(output.faint("no partition matches"))


def topic_line(topic: TopicView) -> str:
    """Return the line of a topic, as kafka-topics --describe prints it."""
    configs = ",".join(f"{name}={'' if v is None else v}" for name, v in topic.configs.items())
    fields = [
        f"Topic: {topic.name}",
        *([] if topic.id is None else [f"TopicId: {topic.id}"]),
        f"PartitionCount: {topic.partition_count}",
        f"ReplicationFactor: {topic.replication_factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(fields)


def partition_line(each: TopicPartitionView) -> str:
    """Return the line of a partition, as kafka-topics --describe prints it."""
    moving = each.adding or each.removing
    fields = [
        "",
        f"Topic: {each.topic}",
        f"Partition: {each.partition}",
        f"Leader: {'none' if each.leader is None else each.leader}",
        f"Replicas: {brokers(each.replicas)}",
        f"Isr: {brokers(each.isr)}",
        *([f"Adding Replicas: {brokers(each.adding)}"] if moving else []),
        *([f"Removing Replicas: {brokers(each.removing)}"] if moving else []),
        f"Elr: {brokers(each.elr)}",
        f"LastKnownElr: {brokers(each.last_known_elr)}",
    ]
    return "\t".join(fields)


def brokers(ids: Iterable[int] | None) -> str:
    """Return `1,2,3`, or `N/A` if unknown."""
    return NOT_AVAILABLE if ids is None else ",".join(map(str, ids))


def _show_partitions(screen: Console, partitions: Sequence[TopicPartitionView]) -> None:
    """Print rpk's columns and the ISR; optional columns only if they have a value."""
    numbers = ("PARTITION", "LEADER", "EPOCH", "LOG-START-OFFSET", "HIGH-WATERMARK")
    columns: dict[str, Callable[[TopicPartitionView], str]] = {
        "PARTITION": lambda each: str(each.partition),
        "LEADER": lambda each: _known(each.leader),
        "EPOCH": lambda each: _known(each.leader_epoch),
        "REPLICAS": lambda each: brokers(each.replicas),
        "ISR": lambda each: brokers(each.isr),
        "LOG-START-OFFSET": lambda each: _known(each.log_start_offset),
        "HIGH-WATERMARK": lambda each: _known(each.high_watermark),
    }
    optional: dict[str, Callable[[TopicPartitionView], str]] = {
        "OFFLINE-REPLICAS": lambda each: brokers(each.offline_replicas),
        "ADDING": lambda each: brokers(each.adding),
        "REMOVING": lambda each: brokers(each.removing),
        "ERROR": lambda each: each.error or "",
    }
    used = {name: cell for name, cell in optional.items() if any(map(cell, partitions))}
    columns |= used
    table = output.table(list(columns), numbers=numbers)
    table.box, table.padding = None, (0, 2, 0, 0)  # as rpk's: it fits 80 columns
    for each in partitions:
        table.add_row(*(cell(each) for cell in columns.values()))
    output.show_table(screen, table)


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
