"""`tidelog audit`: check and compare replicas' files on disk, with Spark."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import examples, format_option, spark_options, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.audit.report.findings import Finding
    from tidelog.apps.audit.report.report import PartitionState, Report

SHOWN_MAX = 200
COLUMNS = (
    "partition",
    "replicas",
    "log start",
    "LEO",
    "HW",
    "epochs",
    "batches",
    "records",
    "bytes",
)


@click.command(
    "audit",
    epilog=examples(
        "tidelog audit tidelog-data",
        "tidelog audit /var/kafka/broker-1 /var/kafka/broker-2 --format json",
        "tidelog audit tidelog-data/broker-1/orders-0",
        "tidelog audit tidelog-data --master spark://host:7077 --conf spark.executor.memory=2g",
    ),
)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("--deep", is_flag=True, help="Also decode every record of every batch.")
@spark_options("Spark master. Its workers must have the folders under the same paths.")
@format_option()
def audit(
    folders: tuple[str, ...], deep: bool, master: str, settings: dict[str, str], form: str
) -> int:
    """Check the files of all replicas on disk, and compare replicas of the same partition.

    DIR is a broker's data folder, a folder that contains several of them, or a partition's folder,
    of Tidelog or Kafka. Brokers may be running; DIR may be a copy. Nothing is written to it.
    Reports damaged batches, gaps, replicas that differ, and wrong indexes and checkpoints. Exit
    code 0 means that no damage was found. Lagging replicas and uncommitted records are reported,
    but are not damage.
    """
    from tidelog.apps import install_advice
    from tidelog.apps.audit.folders.discovery import NothingThere, find_log_dirs
    from tidelog.apps.spark.session import NoJava, spark_session

    try:
        find_log_dirs(folders)
    except NothingThere as error:
        raise usage_error(str(error)) from error
    try:
        from tidelog.apps.audit.run import audit as make_audit
    except ImportError as error:
        raise click.ClickException(
            f"the audit needs Spark ({error.name} is missing): {install_advice.SPARK}"
        ) from error
    settings = {"spark.log.level": "ERROR", **settings}
    try:
        with output.progress("audit") as show_progress:
            show_progress(0, "starting Spark")
            spark = spark_session("tidelog-audit", master, settings)
            report = make_audit(spark, folders, deep, lambda note: show_progress(0, note))
    except NoJava as error:
        raise click.ClickException(str(error)) from error
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: _show(screen, report)
    )


def _show(screen: "Console", report: "Report") -> None:
    """Print a table of partitions, then the findings, damage first."""
    table = output.table(COLUMNS, numbers=COLUMNS[1:])
    for row in report.partitions:
        table.add_row(*_cells(row))
    output.show_table(screen, table)
    for finding in report.findings[:SHOWN_MAX]:
        _show_finding(screen, finding)
    left = len(report.findings) - SHOWN_MAX
    if left > 0:
        screen.print(f"and {left} more; --format json has all of them")
    for advice in report.advice:
        screen.print(advice.text, soft_wrap=True)
    replicas = sum(len(row.replicas) for row in report.partitions)
    summary = (
        f"{len(report.partitions)} partitions, {replicas} replicas,"
        f" {report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s:"
        f" {len(report.damage)} damage, {len(report.notices)}"
        f" notice{'' if len(report.notices) == 1 else 's'}"
    )
    screen.print(output.verdict_line(report.holds, summary))


def _show_finding(screen: "Console", finding: "Finding") -> None:
    from tidelog.apps.audit.report.kinds import KINDS

    style = output.BAD if finding.is_damage else output.WARN
    where = [f"{finding.replica}/{finding.file}".rstrip("/")]
    if finding.position >= 0:
        where.append(f"byte {finding.position}")
    if finding.first_offset >= 0:
        where.append(f"offsets {finding.first_offset} to {finding.last_offset}")
    head = output.styled(f"{finding.severity} ", style).append(finding.kind, output.NAME)
    screen.print(head.append("  " + ", ".join(where)), soft_wrap=True)
    screen.print(f"  {finding.text}", soft_wrap=True)
    if finding.is_damage:
        kind = KINDS[finding.kind]
        screen.print(output.faint(f"  {kind.meaning} To do: {kind.advice}."), soft_wrap=True)


def _cells(row: "PartitionState") -> list[str]:
    """Return the cells of a row: a number that all replicas share once, others as a range."""
    states = row.replicas
    high = [each.high_watermark for each in states if each.high_watermark is not None]
    return [
        f"{row.topic}-{row.partition}",
        str(len(states)),
        _span([each.log_start for each in states]),
        _span([each.log_end for each in states]),
        _span(high),
        _span([len(each.epochs) for each in states]),
        _span([each.batches for each in states]),
        _span([each.records for each in states]),
        _span([each.bytes for each in states]),
    ]


def _span(numbers: list[int]) -> str:
    if not numbers:
        return "-"
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}..{high}"
