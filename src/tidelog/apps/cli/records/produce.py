"""`tidelog produce`: write records, with options like those of kcat and rpk."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from tidelog.apps.cli.connection import (
    WAIT_MAX_S,
    cluster_options,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import examples, usage_error

if TYPE_CHECKING:
    from tidelog.apps.cli.output import ShowProgress
    from tidelog.apps.cli.records.input_records import Parse
    from tidelog.apps.cli.records.sending import Sender
    from tidelog.core.record.record import Header
    from tidelog.shell.client.cluster import Cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""In the order of Kafka's codec numbers."""
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
FAILED, INTERRUPTED = 1, 130
PARTITIONS_SHOWN = 4
WAITING_SHOWN_S = 1.0


class Options(NamedTuple):
    """The options of the command line."""

    topic: str
    files: tuple[str, ...]
    key: str | None
    key_delimiter: str | None
    delimiter: str
    headers: tuple[str, ...]
    partition: int | None
    codec: str
    acks: str
    timestamp: str | None
    null: bool
    template: str | None
    json_lines: bool
    delivery_s: float
    tee: bool
    create: bool
    quiet: bool
    bootstrap: str | None
    timeout_s: float
    form: str


class Plan(NamedTuple):
    """The parsed options."""

    parse: "Parse"
    delimiter: bytes
    headers: "tuple[Header, ...]"
    timestamp: int | None


@click.command(
    "produce",
    epilog=examples(
        "tidelog produce orders",
        "tidelog produce orders -K : -z zstd lines.txt",
        "tidelog produce orders -k order-7 -H source=shell -p 0",
        r"tidelog produce orders -f '%k %v\n' --format json pairs.txt",
        "tidelog produce orders -K : -Z tombstones.txt",
        "tidelog produce copy --create -J lines.json",
    ),
)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@click.option("--key", "-k", metavar="KEY", help="Key of records without a key in the input.")
@click.option(
    "--key-delimiter", "-K", metavar="TEXT", help="Delimiter between key and value in the input."
)
@click.option(
    "--delimiter",
    "-D",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="Delimiter between records in the input.",
)
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add a header to every record; repeatable.",
)
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write to this partition.  [default: by the hash of the key, as Kafka's Java client does;"
    " without a key, any]",
)
@click.option(
    "--codec",
    "-z",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option(
    "--acks",
    type=click.Choice([*ACKS]),
    default="all",
    show_default=True,
    help="Required acknowledgements: all in-sync replicas, the leader (1), or none (0). Only"
    " `acks=all` prevents duplicates.",
)
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Timestamp of all records: milliseconds, ISO 8601 or -15m.  [default: the current time]",
)
@click.option(
    "--null",
    "-Z",
    is_flag=True,
    help="Write empty keys and values as null; a null value is a tombstone.",
)
@click.option(
    "--template",
    "-f",
    metavar="FORMAT",
    help=r"Format of the input: %k key, %s or %v value, %h headers (a=1,b=2), %p partition, %T"
    r" timestamp; \n, \t, \xNN; %k{hex}, %v{base64}.",
)
@click.option(
    "--json",
    "-J",
    "json_lines",
    is_flag=True,
    help="Read JSON lines, as `tidelog consume -J` prints them.",
)
@click.option(
    "--delivery-timeout",
    "delivery_s",
    type=click.FloatRange(0.1, WAIT_MAX_S),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to retry a batch.",
)
@click.option("--tee", "-T", is_flag=True, help="Print the input on stdout when it is written.")
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@click.option("--quiet", "-q", is_flag=True, help="Do not print a summary.")
@cluster_options()
def produce(**given: Any) -> int:
    """Write the lines of stdin, or of files, as records to TOPIC.

    Exit code 0 means that every record is written exactly once (with --acks 1 or 0: sent).
    """
    options = Options(**given)
    plan = _parse_options(options)
    with connected_cluster(
        options.bootstrap, options.timeout_s, "add --create to create it"
    ) as cluster:
        return _run(cluster, options, plan)


def _parse_options(options: Options) -> Plan:
    from tidelog.apps.cli.records.format_string import unescape
    from tidelog.apps.cli.records.input_records import (
        by_format,
        parse_header,
        parse_json,
        plain,
    )
    from tidelog.apps.cli.records.points_in_time import parse_time

    for path in options.files:
        if os.path.isdir(path):
            raise click.UsageError(f"{path!r} is a folder; name files, or read from stdin")
        if not os.path.exists(path):
            raise click.UsageError(f"file {path!r} does not exist")
    forms = [options.json_lines, options.template is not None, options.key_delimiter is not None]
    if sum(forms) > 1:
        raise click.UsageError("-J, -f and -K can't be combined: they are different input formats")
    key = None if options.key is None else options.key.encode(errors="surrogateescape")
    parse: Parse
    try:
        delimiter = unescape(options.delimiter)
        if options.json_lines:
            parse = parse_json
        elif options.template is not None:
            parse, delimiter = by_format(options.template, key)
        else:
            between = options.key_delimiter
            parse = plain(key, None if between is None else _not_empty(unescape(between), "-K"))
        headers = tuple(
            parse_header(text.encode(errors="surrogateescape")) for text in options.headers
        )
        now_ms = int(time.time() * 1000)
        timestamp = None if options.timestamp is None else parse_time(options.timestamp, now_ms)
    except ValueError as error:
        raise usage_error(str(error)) from error
    return Plan(parse, _not_empty(delimiter, "-D"), headers, timestamp)


def _not_empty(delimiter: bytes, option: str) -> bytes:
    if not delimiter:
        raise click.UsageError(f"{option} is empty; give a delimiter, or remove the option")
    return delimiter


def _run(cluster: "Cluster", options: Options, plan: Plan) -> int:
    from tidelog.apps.cli.records.input_records import BadInput
    from tidelog.apps.cli.records.sending import Sender
    from tidelog.core.record.compression import Codec
    from tidelog.shell.client.client_errors import ClientError, Unresolved
    from tidelog.shell.client.producer import Producer

    if options.create:
        from tidelog.shell.client.admin import create_topic

        create_topic(cluster, options.topic, exist_ok=True)
    if options.partition is not None:
        cluster.partition(options.topic, options.partition)
    acks = ACKS[options.acks]
    codec = Codec(CODECS.index(options.codec))
    producer = Producer(
        cluster,
        acks,
        idempotent=acks == -1,
        timeout_s=options.delivery_s,
        codec=codec,
        waiting=Waiting(),
    )
    sender = Sender(producer, options.topic, options.partition)
    failed = ""
    status = 0
    try:
        with _progress(options) as show_progress:
            for source in _sources(options.files):
                _send_all(source, sender, options, plan, show_progress)
            sender.flush()
    except (ClientError, BadInput) as error:
        fate = "may or may not be written" if isinstance(error, Unresolved) else "were not"
        failed = f"{error}; {sender.records} records were written, {sender.waiting} {fate}"
        status = FAILED
    except KeyboardInterrupt:
        status = INTERRUPTED
        if sender.waiting:
            failed = f"interrupted; {sender.waiting} more records may or may not be written"
    if failed:
        click.echo(f"tidelog: {failed}", err=True)
    _report(sender, options, status, failed)
    return status


class Waiting:
    """Prints why records are not written yet: each cause once, after it has lasted a second."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._printed: set[str] = set()

    def __call__(self, error: Exception) -> None:
        """The producer retries after this error."""
        text, now_s = str(error), time.monotonic()
        since_s = self._since_s.setdefault(text, now_s)
        if now_s - since_s >= WAITING_SHOWN_S and text not in self._printed:
            self._printed.add(text)
            click.echo(f"tidelog: waiting: {text}", err=True)


def _sources(files: tuple[str, ...]) -> Iterator[BinaryIO]:
    if not files:
        yield sys.stdin.buffer
    for path in files:
        with open(path, "rb") as file:
            yield file


def _send_all(
    source: BinaryIO, sender: "Sender", options: Options, plan: Plan, show_progress: "ShowProgress"
) -> None:
    """Write the records of a source as they arrive. Raises ClientError, BadInput."""
    from tidelog.apps.cli.records.input_records import BadInput, split
    from tidelog.core.record.record import Record

    number = 0
    for lines in split(source, plan.delimiter):
        now_ms = int(time.time() * 1000)
        for line in lines:
            number += 1
            try:
                key, value, headers, record_ms, partition = plan.parse(line)
            except BadInput as error:
                raise BadInput(f"input record {number}: {error}") from None
            if options.null:
                key, value = key or None, value or None
            when = plan.timestamp if plan.timestamp is not None else record_ms
            record = Record(key, value, now_ms if when is None else when, headers + plan.headers)
            sender.add(record, partition)
        if options.tee or not lines:
            sender.flush()
        if options.tee and lines:
            sys.stdout.buffer.write(plan.delimiter.join(lines) + plan.delimiter)
            sys.stdout.buffer.flush()
        show_progress(sender.records, f"{sender.records} records")


@contextmanager
def _progress(options: Options) -> Iterator["ShowProgress"]:
    """Show the rate on stderr, if it is a terminal and the input is not typed."""
    if options.quiet or not sys.stderr.isatty() or (not options.files and sys.stdin.isatty()):
        yield lambda _done, _note: None
        return
    from tidelog.apps.cli import output

    began = time.monotonic()
    with output.progress(f"to {options.topic}") as show_progress:
        yield lambda done, note: show_progress(
            done, f"{note}, {done / max(time.monotonic() - began, 0.001):,.0f} a second"
        )


def _report(sender: "Sender", options: Options, status: int, failed: str) -> None:
    written = [sender.written[partition] for partition in sorted(sender.written)]
    if options.form == "json":
        import json

        document = {
            "holds": status == 0,
            "topic": options.topic,
            "records": sender.records,
            "bytes": sender.bytes,
            "partitions": [each._asdict() for each in written],
            "error": failed or None,
        }
        click.echo(json.dumps(document, indent=2), err=options.tee)
        return
    if options.quiet:
        return
    places = [
        f"partition {each.partition}"
        if each.first_offset is None
        else f"partition {each.partition} at offset {each.first_offset}"
        if each.first_offset == each.last_offset
        else f"partition {each.partition} at offsets {each.first_offset} to {each.last_offset}"
        for each in written[:PARTITIONS_SHOWN]
    ]
    if len(written) > PARTITIONS_SHOWN:
        places.append(f"{len(written) - PARTITIONS_SHOWN} more partitions")
    where = f": {', '.join(places)}" if places else ""
    what = f"{sender.records} record{'' if sender.records == 1 else 's'} written to"
    click.echo(f"{what} {options.topic}{where}", err=options.tee)
