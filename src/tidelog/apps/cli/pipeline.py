"""`tidelog pipeline`: write topics to a lake, aggregate them, write a lake back to topics."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import bootstrap_option, command_config_option
from tidelog.apps.cli.usage import Section, examples, format_option, spark_options

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.pipeline.plan import Plan
    from tidelog.apps.pipeline.report import OnProgress, Progress, Report

FAILED, NOT_STARTED = 1, 2


LAND = """\
# Write every record of these topics once to Parquet: data/topic=.../date=.../*.parquet
[pipeline]
kind = "land"
name = "orders"
topics = ["orders"]             # or: pattern = "orders-.*"
trigger = "available-now"       # read all records and stop; or "10 seconds": run forever
# The default is the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

# Options of format("tidelog"):
# [source]
# startingOffsets = "earliest"
# maxOffsetsPerTrigger = 1000000

# Decode values to columns; invalid records go to rejected/ with the reason.
# [decode]
# format = "json"
# schema = "id long, amount double, placed timestamp"
"""
AGGREGATE = """\
# Count and sum orders per minute and country; write to a table and a topic, exactly once.
[pipeline]
kind = "aggregate"
name = "per-minute"
topics = ["orders"]
trigger = "available-now"       # read all records and stop; or "10 seconds": run forever
# The default is the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[decode]
format = "json"
schema = "country string, amount double, placed timestamp"

[aggregate]
event_time = "placed"           # by default the record's timestamp
window = "1 minute"
watermark = "5 minutes"         # how late a row may be
group_by = ["country"]

[aggregate.columns]
orders = "count(*)"
revenue = "sum(amount)"

[output]
table = "per-minute"            # a folder of Parquet files
topic = "orders-per-minute"
"""
BACKFILL = """\
# Write a lake of `land` back to a topic: in order, exactly once, resumable.
[pipeline]
kind = "backfill"
name = "orders-again"
topics = ["orders"]             # topics of the lake; the default is all
# The default is the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

[backfill]
topic = "orders-again"          # the default is the original topic
# first = 2026-01-01            # days (UTC) of the records' timestamps
# last = 2026-01-31
"""
FIRST_FILES = {"land": LAND, "aggregate": AGGREGATE, "backfill": BACKFILL}


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog pipeline init land",
        "tidelog pipeline check orders.toml",
        "tidelog pipeline run orders.toml",
    ),
)
def pipeline() -> None:
    """Run pipelines on Spark: topics to a lake, window aggregates, a lake to topics."""


@pipeline.command(
    "run",
    epilog=examples(
        "tidelog pipeline run orders.toml",
        "tidelog pipeline run orders.toml --master spark://host:7077 --format json",
        "tidelog pipeline run orders.toml --conf spark.driver.memory=2g",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@spark_options("Spark master.")
@click.option("--verbose", is_flag=True, help="Show Spark's log, and the stack trace of a failure.")
@bootstrap_option()
@command_config_option()
@format_option()
def run_command(**given: Any) -> int:
    """Run the pipeline in FILE until it is done or interrupted, and print row counts.

    A pipeline that is run again continues where it stopped. Exit code 0 means that every batch
    is committed, 1 that the pipeline failed (the reason is on stderr), 2 that Spark did not
    start.
    """
    from tidelog.apps.pipeline import runner
    from tidelog.apps.pipeline.failure import CannotStart, one_line
    from tidelog.apps.spark.session import NoJava

    plan = _plan(given["file"], given["bootstrap"])
    log = None
    try:
        log = None if given["verbose"] else _log_file(plan)
        with (
            runner.stopped_by_signals() as stop,
            _progress_line(plan) as show_batch,
            runner.own_spark(plan.name, given["master"], given["settings"], log) as spark,
        ):
            report = runner.run_plan(spark, plan, stop, show_batch)
    except (NoJava, ModuleNotFoundError) as error:
        _fail(given["form"], plan, one_line(error), None)
        return NOT_STARTED
    except Exception as error:  # any failure is reported in one line
        if given["verbose"]:
            raise
        _fail(given["form"], plan, one_line(error), log)
        return NOT_STARTED if isinstance(error, CannotStart) else FAILED
    return output.conclude(
        given["form"], True, report.as_data(), lambda screen: show_report(screen, plan, report)
    )


def _plan(file: str, bootstrap: str | None) -> "Plan":
    from tidelog.apps.cli.connection import find_bootstrap, security_texts
    from tidelog.apps.pipeline.pipeline_file import BadFile, read_plan

    try:
        return read_plan(
            file,
            bootstrap,
            otherwise=lambda: find_bootstrap(None),
            security=security_texts,
            to_run=True,
        )
    except BadFile as error:
        raise click.ClickException(str(error)) from None


def _log_file(plan: "Plan") -> str:
    """Return the path of Spark's log: beside the checkpoint."""
    os.makedirs(plan.checkpoint, exist_ok=True)
    return os.path.join(os.path.dirname(plan.checkpoint), f"{plan.name}.spark.log")


def _fail(form: str, plan: "Plan", line: str, log: str | None) -> None:
    import json

    click.echo(f"tidelog: {plan.name}: {line}", err=True)
    if log is not None:
        click.echo(f"tidelog: Spark's log: {log}", err=True)
    if form == "json":
        data = {"holds": False, "name": plan.name, "kind": plan.kind, "error": line}
        json.dump(data, sys.stdout, indent=2)
        sys.stdout.write("\n")


@pipeline.command("check", epilog=examples("tidelog pipeline check orders.toml"))
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@bootstrap_option()
@command_config_option()
@format_option()
def check_command(file: str, bootstrap: str | None, form: str) -> int:
    """Validate a pipeline file and show its values, without brokers and Spark.

    An error in the file is reported with its line number; the exit code is 2.
    """

    plan = _plan(file, bootstrap)
    return output.conclude(form, True, _as_data(plan), lambda screen: _show_plan(screen, plan))


@pipeline.command("init", epilog=examples("tidelog pipeline init land"))
@click.argument("kind", type=click.Choice(["land", "aggregate", "backfill"]))
def init_command(kind: str) -> int:
    """Print a template of a pipeline file."""
    click.echo(FIRST_FILES[kind], nl=False)
    return 0


# -- text output -----------------------------------------------------------------------------


@contextmanager
def _progress_line(plan: "Plan") -> "Iterator[OnProgress]":
    """Show a line about the last batch on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.live import Live

    from tidelog.apps.pipeline.report import Report

    console = Console(stderr=True, markup=False, highlight=False)
    sums = Report(plan.name, plan.kind)
    # Without a thread: Spark forks its Java process, and a fork must not copy a held lock.
    with Live(
        output.styled(f"{plan.name}: starting Spark"),
        console=console,
        auto_refresh=False,
        transient=True,
    ) as line:
        line.refresh()

        def show_batch(progress: "Progress") -> None:
            sums.add(progress)
            line.update(output.styled(batch_line(plan.name, progress, sums)), refresh=True)

        yield show_batch


def batch_line(name: str, progress: "Progress", sums: "Report") -> str:
    """Return the line about a batch."""
    parts = [
        f"{name}: batch {progress.batch}",
        f"in {sums.rows_in:,}",
        f"out {sums.rows_out:,}",
        f"late {sums.late:,}",
        f"rejected {sums.rejected:,}",
        f"{progress.rows_per_s:,.0f} rows/s",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    return "  ".join([*parts, time.strftime("%H:%M:%S")])


def show_report(screen: "Console", plan: "Plan", report: "Report") -> None:
    """Print the row counts of this run and of all runs."""
    table = output.table(["", "rows in", "out", "late", "rejected"], numbers=["rows in", "out"])
    table.add_row("this run", *_numbers(report.as_data()))
    if report.totals:
        table.add_row("all runs", *_numbers(report.totals))
    output.show_table(screen, table)
    if report.lost:
        screen.print(f"{report.lost:,} offsets were lost in the topics and skipped")
    for note in report.notes:
        screen.print(note)
    how = "stopped; run it again to continue" if report.stopped else "all available records done"
    batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
    screen.print(
        output.verdict_line(True, f"{plan.name}: {how}; {batches} in {report.seconds:.1f} s")
    )


def _numbers(data: Mapping[str, Any]) -> list[str]:
    return [f"{data.get(key, 0):,}" for key in ("rows_in", "rows_out", "late", "rejected")]


def _show_plan(screen: "Console", plan: "Plan") -> None:
    """Print every value of the plan, set or default."""
    table = output.table(["key", "value"])
    for key, value in _as_data(plan).items():
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            if part not in (None, (), {}):
                table.add_row(f"{key}.{name}".rstrip("."), _shown(part))
    output.show_table(screen, table)
    screen.print(output.verdict_line(True, f"{plan.name}: the file is valid"))


def _as_data(plan: "Plan") -> dict[str, Any]:
    """Convert a plan to types that JSON has, without passwords and private keys."""
    from dataclasses import asdict

    from tidelog.apps.spark.security_options import redacted

    data = asdict(plan)
    for holder, key in ((data.get("origin"), "options"), (data, "sink")):
        if holder and key in holder:
            holder[key] = redacted(holder[key])
    return {key: str(v) if key in ("first", "last") else v for key, v in data.items()}


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
