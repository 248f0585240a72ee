"""Text output of `tidelog config describe`: a table, or the lines of kafka-configs.

Invariant: a value that the broker hides is shown as hidden, never as empty.
"""

from collections.abc import Sequence

import click
from rich.console import Console

from tidelog.apps.cli import output
from tidelog.shell.client.administration.configs import ConfigEntry, Resource

HIDDEN, NO_VALUE = "(hidden)", "(none)"


def show(
    screen: Console,
    resource: Resource,
    entries: Sequence[ConfigEntry],
    form: str,
    *,
    everything: bool,
) -> None:
    """Print the configs of one topic or broker."""
    if form == "kafka":
        _show_as_kafka(resource, entries, everything)
        return
    table = output.table(("KEY", "VALUE", "SOURCE", "OVERRIDES"))
    for column in table.columns:
        column.overflow = "fold"  # never cut a value
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
        screen.print(
            output.faint(f"{resource}: all configs are at their defaults; --all shows them")
        )


def _show_documented(screen: Console, each: ConfigEntry) -> None:
    screen.print(output.heading(f"{each.name}={_value(each)}"), soft_wrap=True)
    kind = "" if each.type is None else f", {each.type}"
    fixed = ", read-only" if each.read_only else ""
    screen.print(output.indented(output.faint(f"{each.source}{kind}{fixed}")))
    for synonym in each.synonyms[1:]:
        text = f"overrides {synonym.name}={synonym.value} ({synonym.source})"
        screen.print(output.indented(output.faint(text)))
    if each.documentation:
        screen.print(output.indented(each.documentation))


def _show_as_kafka(resource: Resource, entries: Sequence[ConfigEntry], everything: bool) -> None:
    """Print what kafka-configs prints: without --all, only dynamic configs of this resource."""
    if resource.name:
        click.echo(f"{'All' if everything else 'Dynamic'} configs for {resource} are:")
    else:
        click.echo("Default configs for brokers in the cluster are:")
    for each in entries:
        if everything or each.source == resource.own_source:
            click.echo(kafka_line(each))


def _value(each: ConfigEntry) -> str:
    if each.value is not None:
        return each.value
    return HIDDEN if each.sensitive else NO_VALUE


def kafka_line(each: ConfigEntry) -> str:
    """Return the line of a config, as kafka-configs --describe prints it."""
    value = "null" if each.value is None else each.value
    synonyms = ", ".join(
        f"{one.source}:{one.name}={'null' if one.value is None else one.value}"
        for one in each.synonyms
    )
    sensitive = str(each.sensitive).lower()
    return f"  {each.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"
