"""`tidelog verify`: write and read under faults, then check the history for loss and corruption."""

import os
import random
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import LAST_RESORT, command_config_option, security_texts
from tidelog.apps.cli.usage import examples, format_option, history_option
from tidelog.apps.near_names import near

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.verify.report import Report

SEED_MAX = 2**31 - 1
SECONDS = 120
MACHINE_SECONDS = 300
RATE = 5000
TXN_RATE = 300
LIMITS = (
    "A clean run shows that under these faults every client saw the same log. It does not cover"
    " power loss (the system's cache keeps what a killed process wrote), other machines, or other"
    " schedules; for those see `tidelog sim` and `tidelog model`."
)
TIMES = (
    "pause: the longest time without an acknowledgement of any partition, until all replicas are in"
    " sync. led: the partitions that the affected brokers led. next ack: from the fault until such"
    " a partition acknowledges a record that was sent after it."
)


def _known_faults(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    from tidelog.apps.verify.nemesis.plan import KINDS

    if text is None or text == "none":
        return None if text is None else ()
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise click.BadParameter(f"unknown fault {kind!r}; {near(kind, [*KINDS, 'none'])}", ctx)
    return kinds


def _addresses(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    from tidelog.shell.client.cluster import parse_address

    try:
        for address in text.split(",") if text is not None else ():
            parse_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def _usable_folder(_ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    if path is not None and os.path.isdir(path) and os.listdir(path):
        raise click.BadParameter(f"{path} is not empty; name a new folder")
    return path


@click.command(
    "verify",
    epilog=examples(
        "tidelog verify",
        "tidelog verify --seconds 30 --faults kill,pause --seed 7",
        f"tidelog verify --bootstrap {LAST_RESORT} --seconds 20",
        "tidelog verify --acks 1 --faults kill --keep evidence",
        "tidelog verify --transactions --seconds 150",
        "tidelog verify --machines 3",
        "tidelog verify --tls --seconds 30",
        "tidelog verify --seconds 30 --history run.jsonl",
    ),
)
@click.option(
    "--seconds",
    type=click.IntRange(min=1),
    help="How many seconds producers write.  [default: 120; with --machines 300]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, SEED_MAX),
    help="Seed of the fault schedule; repeat a run with the same seed.  [default: random]",
)
@click.option(
    "--bootstrap",
    callback=_addresses,
    metavar="ADDRESS",
    help="Verify this cluster (Tidelog or Kafka), without faults.  [default: start three brokers]",
)
@command_config_option()
@click.option(
    "--tls",
    is_flag=True,
    help="Start brokers whose clients use TLS, with certificates that are made for the run. Needs"
    " openssl.",
)
@click.option(
    "--faults",
    "kinds",
    callback=_known_faults,
    metavar="FAULTS",
    help="Faults to inject, separated by commas: kill, pause, restart, isolate, disk-full, rolling,"
    " damage, damage-live, kill-ahead, kill-two, kill-all; or none.  [default: the first seven]"
    "  With --machines also kill-machine, cut, cut-out, cut-in, pause-machine, etcd-leader,"
    " etcd-quorum, restart-all, skew.  [default: kill and these]",
)
@click.option(
    "--machines",
    type=click.IntRange(3, 9),
    help="Start the brokers on this many machines with etcd. The machines are network namespaces:"
    " needs Linux, root and etcd.",
)
@click.option(
    "--brokers-per-machine",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Brokers on each machine.",
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Run transactional clients and a group that processes exactly once, and check for torn,"
    " aborted and intermediate reads and for cycles. Producers are then writers of transactions.",
)
@click.option(
    "--producers",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Number of producers.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    help="Records per second of all producers together.  [default: 5000; with --transactions 300]",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="acks of the producers; 1 allows loss, and turns idempotence off.",
)
@click.option("--no-idempotence", is_flag=True, help="Use producers without idempotence.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Partitions of the test topic.",
)
@click.option(
    "--client",
    type=click.Choice(["both", "librdkafka", "own"]),
    default="both",
    show_default=True,
    help="Client library of producers and consumers. Tidelog's own client always reads too.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    callback=_usable_folder,
    metavar="DIR",
    help="Keep the history files and the brokers' folders in DIR.",
)
@history_option(
    "Write faults, samples of all replicas and the brokers' events to FILE; `tidelog console"
    " --history FILE` shows them."
)
@format_option()
def verify(  # noqa: PLR0913 - one parameter for each option
    seconds: int | None,
    seed: int | None,
    bootstrap: str | None,
    tls: bool,
    kinds: tuple[str, ...] | None,
    machines: int | None,
    brokers_per_machine: int,
    transactions: bool,
    producers: int,
    rate: int | None,
    acks: str,
    no_idempotence: bool,
    partitions: int,
    client: str,
    keep: str | None,
    history_file: str | None,
    form: str,
) -> int:
    """Write and read while faults are injected, then check the history for anomalies.

    Starts three brokers (replication factor 3, min.insync.replicas 2), also on several machines
    (--machines), or uses the cluster of --bootstrap. Anomalies are lost, duplicate, reordered or
    changed records. Exit code 0 means that none was found.
    """
    from tidelog.apps.verify.nemesis.plan import DEFAULT_KINDS, DEFAULT_MACHINE_KINDS
    from tidelog.apps.verify.report import Options
    from tidelog.apps.verify.run import RunFailed
    from tidelog.apps.verify.run import verify as make_run
    from tidelog.shell.client.security import NO_SECURITY, SecurityTexts

    _check_machines(machines, bootstrap, kinds)
    _check_security(tls, machines, bootstrap)
    if transactions and (acks != "all" or no_idempotence or client == "own"):
        wrong = next(
            name
            for name, given in (
                ("--acks 1", acks != "all"),
                ("--no-idempotence", no_idempotence),
                ("--client own", client == "own"),
            )
            if given
        )
        raise click.UsageError(
            f"{wrong} can't be combined with --transactions: transactional clients use librdkafka"
            " with acks=all and idempotence"
        )

    if bootstrap is not None and kinds:
        raise click.UsageError(
            "--faults can't be combined with --bootstrap: faults are injected only into brokers"
            " that this command starts"
        )
    if kinds is None:
        usual = DEFAULT_KINDS if machines is None else DEFAULT_MACHINE_KINDS
        kinds = () if bootstrap is not None else usual
    if seconds is None:
        seconds = SECONDS if machines is None else MACHINE_SECONDS
    options = Options(
        random.randrange(SEED_MAX) if seed is None else seed,
        seconds,
        bootstrap,
        kinds,
        producers,
        rate or (TXN_RATE if transactions else RATE),
        acks,
        not no_idempotence and acks == "all",
        partitions,
        client,
        keep,
        machines or 0,
        brokers_per_machine,
        history_file,
        transactions,
        tls,
        SecurityTexts(tuple(sorted(security_texts(bootstrap).items())))
        if bootstrap is not None
        else NO_SECURITY,
    )
    try:
        with output.progress(f"seed {options.seed}", seconds) as show_progress:
            report = make_run(options, lambda done, note: show_progress(int(done), note))
    except RunFailed as error:
        raise click.ClickException(f"{error} (seed {options.seed})") from error
    view = VerifyView(report)
    return output.conclude(form, report.holds, report.as_data(), view.show)


def _check_machines(
    machines: int | None, bootstrap: str | None, kinds: tuple[str, ...] | None
) -> None:
    """Raise UsageError for options that do not fit together."""
    from tidelog.apps.verify.nemesis.plan import MACHINE_KINDS, WAYS_OF

    if machines is not None and bootstrap is not None:
        raise click.UsageError("--machines starts a cluster; it can't be combined with --bootstrap")
    for kind in kinds or ():
        if machines is None and kind in MACHINE_KINDS:
            raise click.UsageError(f"fault {kind!r} needs --machines, such as --machines 3")
        if machines is not None and kind in WAYS_OF:
            raise click.UsageError(f"fault {kind!r} is not available with --machines")


def _check_security(tls: bool, machines: int | None, bootstrap: str | None) -> None:
    """Raise UsageError for options that do not fit together."""
    if tls and (bootstrap is not None or machines is not None):
        other = "--machines" if bootstrap is None else "--bootstrap"
        advice = "" if bootstrap is None else "; give the settings of clients in --command-config"
        raise click.UsageError(f"--tls can't be combined with {other}{advice}")
    source = click.get_current_context().get_parameter_source("command_config")
    if bootstrap is None and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "--command-config needs --bootstrap; for brokers of this command's own, use --tls"
        )


# -- text output -----------------------------------------------------------------------------


class VerifyView:
    """The text output of a report."""

    def __init__(self, report: "Report") -> None:
        self.report = report

    def show(self, screen: "Console") -> None:
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

    def _show_figures(self, screen: "Console") -> None:
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
            **{name: f"{count:,}" for name, count in (report.transactions or {}).items()},
        }
        for row in rows.items():
            table.add_row(*row)
        output.show_table(screen, table)

    def _show_faults(self, screen: "Console") -> None:
        numbers = ["at s", "lasted s", "pause s", "led", "next ack s", "in sync s"]
        table = output.table(["#", "fault", "broker", *numbers, "note"], numbers=numbers)
        for column in table.columns[1:3]:
            column.no_wrap = True
        for number, fault in enumerate(self.report.faults, 1):
            healthy = fault.healthy
            waits = self.report.waits_after(number - 1).values()
            notes = ["the controller" if fault.controller else "", fault.note]
            table.add_row(
                str(number),
                fault.kind,
                ", ".join(map(str, fault.brokers)),
                _seconds(fault.begin),
                _seconds(fault.end - fault.begin),
                _figure(self.report.pause_of(number - 1)),
                str(len(fault.led)),
                _longest(list(waits)),
                "never" if healthy is None else _seconds(healthy - fault.end),
                "; ".join(filter(None, notes)),
            )
        output.show_table(screen, table)

    def _show_waits(self, screen: "Console") -> None:
        from tidelog.apps.verify.nemesis.failover import NO_WAITS

        pauses = ["faults", "pause p50 s", "pause max s"]
        columns = ["fault", *pauses, "led", "next ack p50 s", "next ack max s"]
        table = output.table(columns, numbers=columns[1:])
        waits_by_kind = self.report.waits_by_kind()
        for kind, (count, median_s, longest_s, _) in self.report.pauses_by_kind().items():
            waits = waits_by_kind.get(kind, NO_WAITS)
            never = f" ({waits.never} never)" if waits.never else ""
            table.add_row(
                kind,
                str(count),
                _figure(median_s),
                _figure(longest_s),
                f"{waits.waited}{never}",
                _figure(waits.median_s),
                _figure(waits.longest_s),
            )
        output.show_table(screen, table)
        screen.print(output.faint(TIMES))

    def _show_anomalies(self, screen: "Console") -> None:
        from tidelog.apps.verify.checker.findings import ALLOWED_WITH_TRANSACTIONS

        findings, guarantees = self.report.findings, self.report.guarantees
        allowed = guarantees.allows()
        table = output.table(["anomaly", "count", ""], numbers=["count"])
        for kind, meaning in guarantees.kinds.items():
            count = findings.counts[kind]
            style = output.GOOD if not count else output.WARN if kind in allowed else output.BAD
            text = f"{meaning} (these settings allow it)" if kind in allowed else meaning
            table.add_row(kind, output.styled(f"{count:,}", style), text)
        output.show_table(screen, table)
        for kind, found in findings.examples.items():
            if kind in ALLOWED_WITH_TRANSACTIONS:
                continue
            screen.print(output.heading(kind))
            for example in found:
                screen.print(output.indented(output.styled(example)))

    def _command(self) -> str:
        """Return the command that repeats this run, without --keep."""
        from tidelog.apps.verify.report import Options

        options = self.report.options
        usual = Options(options.seed, rate=TXN_RATE if options.transactions else RATE)
        words = [f"tidelog verify --seed {options.seed} --seconds {options.seconds:g}"]
        if options.transactions:
            words.append("--transactions")
        if options.tls:
            words.append("--tls")
        if options.security.texts:
            words.append("--command-config FILE")
        if options.machines:
            words.append(f"--machines {options.machines}")
        if options.brokers_per_machine > 1:
            words.append(f"--brokers-per-machine {options.brokers_per_machine}")
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
        broken = report.findings.broken(report.guarantees)
        what = f"seed {report.options.seed}: {report.figures.acked:,} acknowledged"
        if broken:
            anomalies = ", ".join(f"{count:,} × {kind}" for kind, count in broken.items())
            return f"{what}; {anomalies}"
        return f"{what}; {self._allowed() or '0 lost, 0 anomalies'}"

    def _allowed(self) -> str:
        counts, kinds = self.report.findings.counts, self.report.guarantees.kinds
        found = [f"{counts[kind]:,} × {kind}" for kind in kinds if counts[kind]]
        return f"{', '.join(found)}, which these settings allow" if found else ""


def _seconds(ticks: int) -> str:
    from tidelog.apps.verify.journals import TICKS_A_SECOND

    return f"{ticks / TICKS_A_SECOND:.2f}"


def _longest(waits: list[float | None]) -> str:
    if not waits:
        return "-"
    return "never" if None in waits else _figure(max(wait for wait in waits if wait is not None))


def _figure(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
