"""How `tidelog config describe` shows settings: a table, or the lines of Kafka's own tool.

Always true: a value that the broker hides is shown as hidden, never as empty.
"""

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from tidelog.apps.cli import output
from tidelog.shell.client.administration.configs import ConfigEntry, Resource

HIDDEN, NO_VALUE = "(hidden)", "(none)"


def as_data(entries: Sequence[ConfigEntry]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {**each._asdict(), "synonyms": [synonym._asdict() for synonym in each.synonyms]}
        for each in entries
    ]


def show(
    screen: Console,
    whose: Resource,
    entries: Sequence[ConfigEntry],
    form: str,
    *,
    everything: bool,
) -> None:
    """The settings of one topic or broker."""
    if form == "kafka":
        _show_as_kafka(whose, entries, everything)
        return
    table = output.table(("KEY", "VALUE", "SOURCE", "BEHIND IT"))
    for column in table.columns:
        column.overflow = "fold"  # half a value is none
        column.no_wrap = column.header in ("KEY", "SOURCE")
    documented = any(each.documentation for each in entries)
    for each in entries:
        behind = "\n".join(f"{s.name}={s.value} ({s.source})" for s in each.synonyms[1:])
        table.add_row(each.name, _value(each), each.source, behind)
    if entries and not documented:
        output.show_table(screen, table)
    elif entries:
        for each in entries:
            _show_documented(screen, each)
    else:
        screen.print(output.faint(f"{whose}: nothing but defaults; --all shows them"))


def _show_documented(screen: Console, each: ConfigEntry) -> None:
    screen.print(output.heading(f"{each.name}={_value(each)}"), soft_wrap=True)
    kind = "" if each.type is None else f", {each.type}"
    fixed = ", read-only" if each.read_only else ""
    screen.print(output.indented(output.faint(f"{each.source}{kind}{fixed}")))
    for synonym in each.synonyms[1:]:
        told = f"behind it: {synonym.name}={synonym.value} ({synonym.source})"
        screen.print(output.indented(output.faint(told)))
    if each.documentation:
        screen.print(output.indented(each.documentation))


def _show_as_kafka(whose: Resource, entries: Sequence[ConfigEntry], everything: bool) -> None:
    """Without --all Kafka's tool shows what was set for this resource, while brokers ran."""
    if whose.name:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {whose} are:")
    else:
        click.echo("Default configs for brokers in the cluster are:")
    for each in entries:
        if everything or each.source == whose.own_source:
            click.echo(kafka_line(each))


def _value(each: ConfigEntry) -> str:
    if each.value is not None:
        return each.value
    return HIDDEN if each.sensitive else NO_VALUE


def kafka_line(each: ConfigEntry) -> str:
    """A setting as kafka-configs --describe prints it."""
    value = "null" if each.value is None else each.value
    synonyms = ", ".join(
        f"{one.source}:{one.name}={'null' if one.value is None else one.value}"
        for one in each.synonyms
    )
    sensitive = str(each.sensitive).lower()
    return f"  {each.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"
