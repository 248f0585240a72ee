"""Output of `tidelog verify`."""

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.verify.checker.findings import KINDS
from tidelog.apps.verify.history.rows import TICKS_A_SECOND
from tidelog.apps.verify.options import Options
from tidelog.apps.verify.report import Report

LIMITS = (
    "A clean run shows that under these faults every client saw the same log. It does not cover"
    " power loss (the system's cache keeps what a killed process wrote), other machines, or other"
    " schedules; for those see `tidelog sim` and `tidelog model`."
)


class VerifyView:
    """Prints a report."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def show(self, screen: Console) -> None:
        """Print figures, faults, waits, anomalies and the verdict."""
        report = self.report
        self._show_figures(screen)
        if report.faults:
            self._show_faults(screen)
            self._show_waits(screen)
        self._show_anomalies(screen)
        for trouble in report.troubles:
            screen.print(output.faint(f"note: {trouble}"), soft_wrap=True)
        if report.kept:
            screen.print(f"history, logs and report.json: {report.kept}", soft_wrap=True)
        screen.print(output.faint(LIMITS))
        screen.print(f"to repeat this fault schedule: {self._command()}", soft_wrap=True)
        screen.print(output.verdict_line(report.holds, self._verdict()))

    def _show_figures(self, screen: Console) -> None:
        report, figures = self.report, self.report.figures
        table = output.table(["figure", "value"], numbers=["value"])
        rows = {
            "acknowledged records": f"{figures.acked:,}",
            "acknowledged per second": f"{figures.acked_a_second:,.0f}",
            "unknown outcome": f"{figures.unknown:,}",
            "rejected": f"{figures.refused:,}",
            **{f"read by {who}": f"{n:,}" for who, n in figures.read.items() if n},
            "records in the final log": f"{figures.in_log:,}",
            "batches": f"{figures.batches:,}",
            "leader changes in the log": f"{figures.leader_epochs:,}",
            "replicas compared on disk": f"{figures.replicas_compared:,}",
            "faults": f"{len(report.faults):,}",
            "kill -9": f"{report.kills:,}",
        }
        for row in rows.items():
            table.add_row(*row)
        output.show_table(screen, table)

    def _show_faults(self, screen: Console) -> None:
        numbers = ["at s", "lasted s", "next ack after s", "in sync after s"]
        columns = ["#", "fault", "broker", *numbers, "led", "note"]
        table = output.table(columns, numbers=numbers)
        for number, fault in enumerate(self.report.faults, 1):
            healthy = fault.healthy
            waits = self.report.waits_after(number - 1).values()
            table.add_row(
                str(number),
                fault.kind,
                ", ".join(map(str, fault.brokers)) + (" (controller)" if fault.controller else ""),
                _seconds(fault.begin),
                _seconds(fault.end - fault.begin),
                _longest(list(waits)),
                "never" if healthy is None else _seconds(healthy - fault.end),
                ", ".join(map(str, fault.led)) or "-",
                fault.note,
            )
        output.show_table(screen, table)

    def _show_waits(self, screen: Console) -> None:
        columns = ["from the fault to the next acknowledged write", "partitions", "p50 s", "max s"]
        table = output.table(columns, numbers=columns[1:])
        for kind, waits in self.report.waits_by_kind().items():
            numbers = [_figure(waits.median_s), _figure(waits.longest_s)]
            never = f" ({waits.never} never)" if waits.never else ""
            table.add_row(kind, f"{waits.waited}{never}", *numbers)
        output.show_table(screen, table)

    def _show_anomalies(self, screen: Console) -> None:
        findings, allowed = self.report.findings, self.report.promise.allows()
        table = output.table(["anomaly", "count", ""], numbers=["count"])
        for kind, meaning in KINDS.items():
            count = findings.counts[kind]
            style = output.GOOD if not count else output.WARN if kind in allowed else output.BAD
            text = f"{meaning} (these settings allow it)" if kind in allowed else meaning
            table.add_row(kind, Text(f"{count:,}", style), text)
        output.show_table(screen, table)
        for kind, examples in findings.examples.items():
            screen.print(output.heading(kind))
            for example in examples:
                screen.print(output.indented(Text(example)))

    def _command(self) -> str:
        """Return the command that repeats this run, without --keep."""
        options = self.report.options
        usual = Options(options.seed)
        words = [f"tidelog verify --seed {options.seed} --seconds {options.seconds:g}"]
        if options.bootstrap is not None:
            words.append(f"--bootstrap {options.bootstrap}")
        else:
            words.append(f"--faults {','.join(options.kinds) or 'none'}")
        names = ("producers", "rate", "acks", "partitions", "client")
        unusual = [name for name in names if getattr(options, name) != getattr(usual, name)]
        words += [f"--{name} {getattr(options, name)}" for name in unusual]
        if options.acks == "all" and not options.idempotence:
            words.append("--no-idempotence")
        return " ".join(words)

    def _verdict(self) -> str:
        report = self.report
        broken = report.findings.broken(report.promise)
        what = f"seed {report.options.seed}: {report.figures.acked:,} acknowledged"
        if broken:
            anomalies = ", ".join(f"{count:,} × {kind}" for kind, count in broken.items())
            return f"{what}; {anomalies}"
        return f"{what}; {self._allowed() or '0 lost, 0 anomalies'}"

    def _allowed(self) -> str:
        counts = self.report.findings.counts
        found = [f"{counts[kind]:,} × {kind}" for kind in KINDS if counts[kind]]
        return f"{', '.join(found)}, which these settings allow" if found else ""


def _seconds(ticks: int) -> str:
    return f"{ticks / TICKS_A_SECOND:.2f}"


def _longest(waits: list[float | None]) -> str:
    if not waits:
        return "-"
    return "never" if None in waits else _figure(max(wait for wait in waits if wait is not None))


def _figure(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
