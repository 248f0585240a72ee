"""`tidelog repair`: check a stopped broker's folder, and repair it from another folder."""

import os
from typing import TYPE_CHECKING, Any

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import examples, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.repair.run import Repaired, Report

FOLDER = click.Path(file_okay=False)


@click.command(
    "repair",
    epilog=examples(
        "tidelog repair tidelog-data/broker-1",
        "tidelog repair tidelog-data/broker-1 --from /backup/broker-1 --plan",
        "tidelog repair tidelog-data/broker-1 --from /backup/broker-1",
    ),
)
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--from",
    "source",
    type=FOLDER,
    metavar="DIR2",
    help="Replace damaged records with records of this folder: a backup, or another broker's.",
)
@click.option("--plan", is_flag=True, help="Show what would be replaced; write nothing.")
@format_option()
def repair(folder: str, source: str | None, plan: bool, form: str) -> int:
    """Check the records of a stopped broker's folder, and repair them from another folder.

    A running cluster repairs a damaged replica automatically, from the partition's leader. Use
    --from if it can't: the only replica in sync is damaged, and another folder has its records.
    A partition is changed only if DIR2 has all its damaged records, with the same topic id and
    leader epochs. Also shows what recovery will do at the next startup. Exit code 0 means that no
    damage was found, or all of it is repaired.
    """
    from tidelog.apps.repair.run import CannotCheck, run

    if plan and source is None:
        raise click.UsageError("--plan requires --from DIR2: without --from nothing is written")
    if source is not None and os.path.realpath(folder) == os.path.realpath(source):
        raise click.UsageError("--from must not be the same folder as DIR")
    try:
        report = run(folder, source, plan=plan)
    except CannotCheck as error:
        raise click.ClickException(str(error)) from error
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: _show(screen, report)
    )


def _show(screen: "Console", report: "Report") -> None:

    numbers = ("log start", "log end")
    table = output.table(("partition", *numbers, "damaged offsets", "state"), numbers=numbers)
    for each in report.partitions:
        check = each.check
        ranges = ", ".join(f"{one.start} to {one.end - 1}" for one in check.damaged)
        ends = (str(check.log_start_offset), str(check.log_end_offset))
        table.add_row(check.name, *ends, ranges, _state(each))
    output.show_table(screen, table)
    for each in report.partitions:
        for one in each.check.damaged:
            screen.print(f"{each.check.name}: {one}", soft_wrap=True)
        for line in each.check.at_start:
            screen.print(output.faint(f"at the next startup: {line}"), soft_wrap=True)
    for line in report.remarks:
        screen.print(output.faint(f"at the next startup: {line}"), soft_wrap=True)
    screen.print(output.verdict_line(report.holds, _verdict(report)), soft_wrap=True)


def _state(each: "Repaired") -> Any:

    if not each.check.damaged:
        return output.mark(True, "undamaged")
    if each.problem is not None:
        return output.mark(False, bad=f"not repaired: {each.problem}")
    if each.mended is None:
        return output.mark(False, bad="damaged")
    return output.mark(True, "repaired" if each.mended else "can be repaired")


def _verdict(report: "Report") -> str:
    damaged = [each for each in report.partitions if each.check.damaged]
    total = len(report.partitions)
    if not damaged:
        return f"{total} partitions, no damaged record"
    summary = f"{len(damaged)} of {total} partitions are damaged"
    left = [each for each in damaged if not each.mended]
    if not left:
        return f"{summary}, all of them are repaired"
    if any(each.mended is False for each in damaged):
        return f"{summary}; run without --plan to repair those that can be repaired"
    if any(each.problem for each in damaged):
        return f"{summary}; {len(left)} could not be repaired"
    return (
        f"{summary}; start the broker: it copies these records from the partition's leader."
        " If no other replica is in sync, repair them first with --from DIR2"
    )
