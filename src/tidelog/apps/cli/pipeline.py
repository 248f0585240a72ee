"""`tidelog pipeline`: land topics in a lake, aggregate them, send a lake back to topics."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli.connection import bootstrap_option
from tidelog.apps.cli.usage import Section, examples, format_option

if TYPE_CHECKING:
    from tidelog.apps.pipeline.plan import Plan

LOCAL = "local[*]"
FAILED, NOT_STARTED = 1, 2


LAND = """\
# Every record of these topics to Parquet files, once: data/topic=.../date=.../*.parquet
[pipeline]
kind = "land"
name = "orders"
topics = ["orders"]             # or: pattern = "orders-.*"
trigger = "available-now"       # all that is there, then end; or "10 seconds": for ever
# By default the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

# Options of format("tidelog"), as they are:
# [source]
# startingOffsets = "earliest"
# maxOffsetsPerTrigger = 1000000

# Values as columns; what does not fit goes to rejected/ with the reason.
# [decode]
# format = "json"
# schema = "id long, amount double, placed timestamp"
"""
AGGREGATE = """\
# Orders and their sum for each minute and country, to a table and a topic, once.
[pipeline]
kind = "aggregate"
name = "per-minute"
topics = ["orders"]
trigger = "available-now"       # all that is there, then end; or "10 seconds": for ever
# By default the cluster of ./tidelog-data:
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
# A lake that `land` wrote, back to a topic: in order, once, resumable.
[pipeline]
kind = "backfill"
name = "orders-again"
topics = ["orders"]             # of the lake; by default all
# By default the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

[backfill]
topic = "orders-again"          # by default the topic it came from
# first = 2026-01-01            # by the day of the record's timestamp, UTC
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
    """Run pipelines on Spark: topics to a lake, windows over topics, a lake to topics."""


def _settings(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is no setting; write key=value")
        settings[key.strip()] = value
    return settings


@pipeline.command(
    "run",
    epilog=examples(
        "tidelog pipeline run orders.toml",
        "tidelog pipeline run orders.toml --master spark://host:7077 --format json",
        "tidelog pipeline run orders.toml --conf spark.driver.memory=2g",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@click.option(
    "--master", default=LOCAL, show_default=True, help="Where Spark runs, as Spark has it."
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    callback=_settings,
    metavar="KEY=VALUE",
    help="A setting of Spark; any number of times.",
)
@click.option("--verbose", is_flag=True, help="Show Spark's log, and its trace if it fails.")
@bootstrap_option()
@format_option()
def run_command(**given: Any) -> int:
    """Run the pipeline in a file until it is done, or until Ctrl-C; then say what it did.

    Run it again, and it goes on where it was. Exit code 0 means that every batch is whole;
    1 that it failed, and why is on stderr in one line; 2 that Spark did not start.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import pipeline as rendering
    from tidelog.apps.pipeline import runner
    from tidelog.apps.pipeline.failure import CannotStart, one_line
    from tidelog.apps.spark.session import NoJava

    plan = _plan(given["file"], given["bootstrap"])
    log = None
    try:
        log = None if given["verbose"] else _log_file(plan)
        with (
            runner.stopped_by_signals() as stop,
            rendering.live(plan) as tell,
            runner.own_spark(plan.name, given["master"], given["settings"], log) as spark,
        ):
            report = runner.run_plan(spark, plan, stop, tell)
    except (NoJava, ModuleNotFoundError) as error:
        _fail(given["form"], plan, one_line(error), None)
        return NOT_STARTED
    except Exception as error:  # whatever it is, people get one line of it
        if given["verbose"]:
            raise
        _fail(given["form"], plan, one_line(error), log)
        return NOT_STARTED if isinstance(error, CannotStart) else FAILED
    return output.conclude(
        given["form"],
        True,
        report.as_data(),
        lambda screen: rendering.show_report(screen, plan, report),
    )


def _plan(file: str, bootstrap: str | None) -> "Plan":
    from tidelog.apps.cli.connection import find_bootstrap
    from tidelog.apps.pipeline.pipeline_file import BadFile, read_plan

    try:
        return read_plan(file, bootstrap, otherwise=lambda: find_bootstrap(None), to_run=True)
    except BadFile as error:
        raise click.ClickException(str(error)) from None


def _log_file(plan: "Plan") -> str:
    """Where Spark's own log goes: beside the checkpoint."""
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
@format_option()
def check_command(file: str, bootstrap: str | None, form: str) -> int:
    """Read a pipeline file and show what it would do; neither brokers nor Spark are asked.

    A mistake in it is told with its line, and the exit code is 2.
    """
    from tidelog.apps.cli import output
    from tidelog.apps.cli.rendering import pipeline as rendering
    from tidelog.apps.views.pipeline import plan_as_data

    plan = _plan(file, bootstrap)
    return output.conclude(
        form,
        True,
        plan_as_data(plan),
        lambda screen: rendering.show_plan(screen, plan),
    )


@pipeline.command("init", epilog=examples("tidelog pipeline init land"))
@click.argument("kind", type=click.Choice(["land", "aggregate", "backfill"]))
def init_command(kind: str) -> int:
    """Print a pipeline file to begin with."""
    click.echo(FIRST_FILES[kind], nl=False)
    return 0
