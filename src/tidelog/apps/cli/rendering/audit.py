"""The audit for people: a table of partitions, then the findings, damage first."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.report.kinds import KINDS
from tidelog.apps.audit.report.report import PartitionState, Report
from tidelog.apps.cli import output

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


class AuditView:
    """Prints a report."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def show(self, screen: Console) -> None:
        output.show_table(screen, self._table())
        for finding in self._report.findings[:SHOWN_MAX]:
            self._show_finding(screen, finding)
        left = len(self._report.findings) - SHOWN_MAX
        if left > 0:
            screen.print(f"and {left} more; --format json has all of them")
        for mending in self._report.mendings:
            screen.print(mending.text, soft_wrap=True)
        screen.print(self._verdict())

    def _table(self) -> Table:
        table = output.table(COLUMNS, numbers=COLUMNS[1:])
        for row in self._report.partitions:
            table.add_row(*_cells(row))
        return table

    def _show_finding(self, screen: Console, finding: Finding) -> None:
        style = output.BAD if finding.is_damage else output.WARN
        where = [f"{finding.replica}/{finding.file}".rstrip("/")]
        if finding.position >= 0:
            where.append(f"byte {finding.position}")
        if finding.first_offset >= 0:
            where.append(f"offsets {finding.first_offset} to {finding.last_offset}")
        head = Text(f"{finding.severity} ", style).append(finding.kind, output.NAME)
        screen.print(head.append("  " + ", ".join(where)), soft_wrap=True)
        screen.print(f"  {finding.text}", soft_wrap=True)
        if finding.is_damage:
            kind = KINDS[finding.kind]
            screen.print(output.faint(f"  {kind.meaning} To do: {kind.advice}."), soft_wrap=True)

    def _verdict(self) -> Text:
        report = self._report
        replicas = sum(len(row.replicas) for row in report.partitions)
        summary = (
            f"{len(report.partitions)} partitions, {replicas} replicas,"
            f" {report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s:"
            f" {len(report.damage)} damage, {len(report.notices)}"
            f" notice{'' if len(report.notices) == 1 else 's'}"
        )
        return output.verdict_line(report.holds, summary)


def _cells(row: PartitionState) -> list[str]:
    """Numbers that replicas share once, others as a range."""
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
