"""How `tidelog topic` shows topics: in Kafka's own lines, as a table, and what became of changes.

Always true: Kafka's lines have tabs between their fields, as scripts expect them, whatever
the width of the screen.
"""

from collections.abc import Callable, Iterable, Sequence

import click
from rich.console import Console

from tidelog.apps.cli import output
from tidelog.apps.cli.admin.topic_report import Listed, Partition, Topic

UNKNOWN = "–"
NOT_TOLD = "N/A"


def show_list(screen: Console, topics: Sequence[Listed]) -> None:
    """A line for each topic, and how many there are."""
    numbers = ("PARTITIONS", "REPLICAS")
    table = output.table(("NAME", *numbers, ""), numbers=numbers)
    for topic in topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if topics:
        output.show_table(screen, table)
    partitions = sum(topic.partitions for topic in topics)
    screen.print(output.faint(f"topics: {len(topics)}, partitions: {partitions}"))


def show_topics(screen: Console, topics: Sequence[Topic], form: str, *, headed: bool) -> None:
    """Kafka's lines, a table, or (form `text`) one behind the other. With filters Kafka leaves
    out the line of the topic itself: `headed` is false."""
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
        screen.print(output.faint("no partition to show"))


def topic_line(topic: Topic) -> str:
    """The first line of kafka-topics --describe."""
    configs = ",".join(f"{name}={'' if v is None else v}" for name, v in topic.configs.items())
    fields = [
        f"Topic: {topic.name}",
        *([] if topic.id is None else [f"TopicId: {topic.id}"]),
        f"PartitionCount: {topic.partition_count}",
        f"ReplicationFactor: {topic.replication_factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(fields)


def partition_line(each: Partition) -> str:
    """A further line of kafka-topics --describe."""
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
    """`1,2,3`; what is not told is told so."""
    return NOT_TOLD if ids is None else ",".join(map(str, ids))


def _show_partitions(screen: Console, partitions: Sequence[Partition]) -> None:
    """rpk's columns and the ISR; some only where there is something to tell."""
    numbers = ("PARTITION", "LEADER", "EPOCH", "LOG-START-OFFSET", "HIGH-WATERMARK")
    columns: dict[str, Callable[[Partition], str]] = {
        "PARTITION": lambda each: str(each.partition),
        "LEADER": lambda each: _known(each.leader),
        "EPOCH": lambda each: _known(each.leader_epoch),
        "REPLICAS": lambda each: brokers(each.replicas),
        "ISR": lambda each: brokers(each.isr),
        "LOG-START-OFFSET": lambda each: _known(each.log_start_offset),
        "HIGH-WATERMARK": lambda each: _known(each.high_watermark),
    }
    optional: dict[str, Callable[[Partition], str]] = {
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
