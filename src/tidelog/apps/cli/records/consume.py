"""`tidelog consume`: read records, with options like those of kcat and rpk."""

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.apps.cli.connection import (
    cluster_options,
    complete_group,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import examples, usage_error

if TYPE_CHECKING:
    from tidelog.apps.cli.records.reading import Notify, Render, Source, Wanted
    from tidelog.shell.client.cluster import Cluster

ISOLATION = ("read_uncommitted", "read_committed")
"""In the order of Kafka's numbers."""
PARTITIONS_MAX = 100_000


class Options(NamedTuple):
    """The options of the command line."""

    topics: tuple[str, ...]
    regex: bool
    offsets: tuple[str, ...]
    partitions: tuple[int, ...]
    limit: int | None
    to_end: bool
    follow: bool
    template: str | None
    json_lines: bool
    key_delimiter: str | None
    delimiter: str
    null: bool
    print_offsets: bool
    group: str | None
    isolation: str
    quiet: bool
    bootstrap: str | None
    timeout_s: float
    form: str


def parse_partitions(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...]:
    """Parse `0`, `0,3`, `0-2`, and several of them."""
    found: list[int] = []
    for part in [part for text in texts for part in text.split(",")]:
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if span is None:
            raise click.BadParameter(f"{part!r} is not a partition; write 0, 0,3 or 0-2")
        first, last = int(span[1]), int(span[2] or span[1])
        if last - first >= PARTITIONS_MAX:
            raise click.BadParameter(f"{part!r} is more than {PARTITIONS_MAX} partitions")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


@click.command(
    "consume",
    epilog=examples(
        "tidelog consume orders",
        "tidelog consume orders -o -10 -e",
        "tidelog consume orders -o @-15m --follow",
        "tidelog consume orders -o @2024-01-31T10:00:00Z:2024-01-31T11:00:00Z -J",
        r"tidelog consume orders -p 0,1 -n 5 -f '%t [%p] at %o: %k = %s\n'",
        "tidelog consume -r '^orders' --group audit",
    ),
)
@click.argument(
    "topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic
)
@click.option("--regex", "-r", is_flag=True, help="TOPIC is a regular expression.")
@click.option(
    "--offset",
    "-o",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Start: beginning, end, stored (the group's offset), 42, -10 (before the end) or @TIME; or"
    " a range: 10:20, @TIME:TIME. TIME is in milliseconds, ISO 8601 or -15m.  [default:"
    " beginning]",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    callback=parse_partitions,
    metavar="N",
    help="Read only these partitions: 0, 0,3 or 0-2.  [default: all]",
)
@click.option(
    "--count",
    "-n",
    "-c",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N records.",
)
@click.option("--to-end", "-e", is_flag=True, help="Stop at the current end of the log.")
@click.option(
    "--follow", is_flag=True, help="Wait for new records at the end of the log (default)."
)
@click.option(
    "--template",
    "-f",
    metavar="FORMAT",
    help=r"Output format: %t topic, %p partition, %o offset, %k key, %s or %v value, %K and %S"
    r" their lengths, %T timestamp, %h headers, %H header count, %e leader epoch, %i number, %%;"
    " \n,"
    r" \t, \xNN; %k{hex}, %s{base64}.",
)
@click.option(
    "--json", "-J", "json_lines", is_flag=True, help="Print each record as a line of JSON."
)
@click.option(
    "--key-delimiter",
    "-K",
    metavar="TEXT",
    help="Print the key and this delimiter before the value.",
)
@click.option(
    "--delimiter",
    "-D",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="Delimiter after each record.",
)
@click.option("--null", "-Z", is_flag=True, help="Print NULL for a null key or value.")
@click.option(
    "--print-offsets", "-O", is_flag=True, help="Print topic/partition@offset before each record."
)
@click.option(
    "--group",
    "-g",
    shell_complete=complete_group,
    metavar="GROUP",
    help="Read as a member of this group, and commit the offsets of printed records.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION),
    default=ISOLATION[0],
    show_default=True,
    help="read_committed leaves out records of open and aborted transactions.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only errors on stderr.")
@cluster_options()
def consume(**given: Any) -> int:
    """Print the records of topics, and wait for new ones.

    Stops at the current end of the log with -e, after N records with -n, and on Ctrl-C; the exit
    code is 0. A new leader, truncated records and deleted offsets are reported on stderr, and
    reading continues.
    """
    options = Options(**given)
    wanted, render = _parse_options(options)
    from tidelog.apps.cli.records.reading import Printer, print_records

    def notify(line: str) -> None:
        if not options.quiet:
            click.echo(f"tidelog: {line}", err=True)

    try:
        with connected_cluster(options.bootstrap, options.timeout_s) as cluster:
            source = _source(cluster, wanted, options.group, notify)
            print_records(source, Printer(render), options.limit)
    except KeyboardInterrupt:
        return 0  # before the first record
    return 0


def _parse_options(options: Options) -> "tuple[Wanted, Render]":
    """Parse the options. Raises UsageError."""
    from tidelog.apps.cli.records.offset_range import (
        BEGINNING,
        END,
        STORED,
        OffsetRange,
        Point,
        parse_offsets,
    )
    from tidelog.apps.cli.records.reading import Wanted

    try:
        offsets = parse_offsets(options.offsets, int(time.time() * 1000))
        render = _render(options)
        for text in options.topics if options.regex else ():
            re.compile(text)
    except (ValueError, re.error) as error:
        raise usage_error(str(error)) from error
    if options.follow and options.to_end:
        raise click.UsageError("--follow and -e can't be combined")
    if options.group is None and offsets is not None and offsets.start.kind == STORED:
        raise click.UsageError("-o stored requires --group")
    if options.group is not None:
        if options.partitions:
            raise click.UsageError(
                "-p can't be combined with --group: the group assigns partitions"
            )
        if offsets is not None and (offsets.start.kind > STORED or offsets.end is not None):
            raise click.UsageError(
                "with --group, -o must be beginning, end or stored: reading starts at committed"
                " offsets"
            )
        if offsets is not None and offsets.start.kind not in (BEGINNING, END):
            offsets = None
    wanted = Wanted(
        options.topics,
        options.regex,
        options.partitions,
        offsets or OffsetRange(Point(BEGINNING)),
        options.to_end,
        ISOLATION.index(options.isolation),
    )
    return wanted, render


def _render(options: Options) -> "Render":
    from tidelog.apps.cli.records.reading import formatted, json_lines

    shaped = options.template is not None or options.key_delimiter is not None
    if options.json_lines or options.form == "json":
        if shaped or options.print_offsets:
            raise ValueError("-J can't be combined with -f, -K or -O")
        return json_lines
    if options.template is not None:
        if options.key_delimiter is not None or options.print_offsets:
            raise ValueError("-f can't be combined with -K or -O")
        return formatted(options.template, b"NULL" if options.null else b"")
    key = "" if options.key_delimiter is None else "%k" + _escape_percent(options.key_delimiter)
    place = "%t/%p@%o\\t" if options.print_offsets else ""
    template = f"{place}{key}%s{_escape_percent(options.delimiter)}"
    return formatted(template, b"NULL" if options.null else b"")


def _escape_percent(text: str) -> str:
    """Escape percent signs in a delimiter."""
    return text.replace("%", "%%")


def _source(cluster: "Cluster", wanted: "Wanted", group: str | None, notify: "Notify") -> "Source":
    from tidelog.apps.cli.records.reading import PartitionReader, group_reader

    if group is None:
        return PartitionReader(cluster, wanted, notify)
    return group_reader(cluster, wanted, group, notify)
