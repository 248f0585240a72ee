"""`tidelog partition`: describe replicas of a partition, elect leaders.

Each replica's log is printed as a bar; all bars share one scale of offsets. A bar is solid up to
the replica's high watermark (or the leader's, if unknown), and light from there to the log end.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    LAST_RESORT,
    cluster_options,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import (
    Section,
    examples,
    one_partition,
    topic_or_partition,
    usage_error,
    yes_option,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tidelog.apps.views.partition import PartitionsView, PartitionView, ReplicaView
    from tidelog.apps.views.recovery import RecoveryView

WATCH_S = 1.0
BAR_WIDTH = 40
EPOCHS_SHOWN = 4
COMMITTED, UNCOMMITTED, NOTHING = "█", "▒", " "
NUMBERS = ("log start", "log end", "lag", "HW", "LSO", "epoch")
COLUMNS = ("broker", "role", "in sync", *NUMBERS, "epoch:start")


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog partition describe orders/0",
        "tidelog partition describe orders --format json",
        "tidelog partition elect --all",
        "tidelog partition recover orders/0 --plan",
    ),
)
def partition() -> None:
    """Describe partitions of a running cluster, and elect their leaders."""


def _parse_name(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int | None]:
    return topic_or_partition(text)


def _parse_partition(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int]:
    return one_partition(text)


def _parse_names(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[str, int | None]]:
    return [topic_or_partition(text) for text in texts]


@partition.command(
    "describe",
    epilog=examples(
        "tidelog partition describe orders/0",
        f"tidelog partition describe orders -b {LAST_RESORT}",
        "tidelog partition describe orders/0 --watch",
    ),
)
@click.argument(
    "name", metavar="TOPIC[/PARTITION]", callback=_parse_name, shell_complete=complete_topic
)
@click.option("--watch", is_flag=True, help="Refresh every second until interrupted.")
@cluster_options()
def describe_command(
    name: tuple[str, int | None], bootstrap: str | None, timeout_s: float, watch: bool, form: str
) -> int:
    """Show each replica's log start and end, high watermark, leader epochs and lag.

    Every broker reports its own replica; brokers that can't be reached are shown. For a Kafka
    cluster, shows only the values that Kafka's protocol reports. Exit code 0 means: each partition
    has a leader, and every replica is in sync and its broker responded.
    """
    from tidelog.apps.views.partition import view_partitions

    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = view_partitions(cluster, *name)
        if watch and form == "text":
            report = watch_partitions(lambda: view_partitions(cluster, *name), report)
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: show_partitions(screen, report)
    )


@partition.command(
    "elect",
    epilog=examples(
        "tidelog partition elect --all",
        "tidelog partition elect orders/0 payments",
        "tidelog partition elect orders/0 --unclean",
    ),
)
@click.argument(
    "names",
    metavar="[TOPIC[/PARTITION]]...",
    nargs=-1,
    callback=_parse_names,
    shell_complete=complete_topic,
)
@click.option(
    "--all",
    "everywhere",
    is_flag=True,
    help="Elect leaders of all partitions that need an election.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="For partitions without a leader, also elect a replica that is not in sync."
    " Acknowledged records may be lost.",
)
@cluster_options()
def elect_command(
    names: list[tuple[str, int | None]],
    everywhere: bool,
    unclean: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Elect the preferred leader: the first replica of a partition, if it is in sync.

    The controller does the same every leader.imbalance.check.interval.seconds. Exit code 0 means
    that every named partition has the requested leader.
    """
    from tidelog.apps.changes.election import elect_leaders
    from tidelog.apps.changes.outcome import done

    if everywhere == bool(names):
        message = (
            "name partitions, or use --all" if not names else "--all can't be combined with names"
        )
        raise usage_error(message)
    with connected_cluster(bootstrap, timeout_s) as cluster:
        changes = elect_leaders(cluster, None if everywhere else names, unclean=unclean)
    if not changes and form == "text":
        why = "has a leader" if unclean else "is led by its preferred replica"
        changes = [done("all", f"no election needed: every partition {why}")]
    return output.conclude_changes(form, "partitions", changes)


@partition.command(
    "recover",
    epilog=examples(
        "tidelog partition recover orders/0 --plan", "tidelog partition recover orders/0 --yes"
    ),
)
@click.argument(
    "name", metavar="TOPIC/PARTITION", callback=_parse_partition, shell_complete=complete_topic
)
@click.option(
    "--plan", "plan_only", is_flag=True, help="Only show what electing each replica would lose."
)
@yes_option()
@cluster_options()
def recover_command(
    name: tuple[str, int],
    plan_only: bool,
    yes: bool,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Elect a leader for a partition that has none, after showing what that would lose.

    Compares the logs of all replicas whose brokers respond. The controller then elects the one
    with the most records, even if it was not in sync: records that only other replicas have are
    lost. With --plan, exit code 0 means: a replica can lead, and every log is known.
    """
    from tidelog.apps.changes.election import elect_leaders
    from tidelog.apps.views.partition import view_partitions
    from tidelog.apps.views.recovery import view_recovery

    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = view_partitions(cluster, *name)
        if report.missing:
            raise click.ClickException(report.missing)
        plan = view_recovery(report.partitions[0])
        if plan_only:
            return output.conclude(
                form, plan.complete, plan.as_data(), lambda screen: show_recovery(screen, plan)
            )
        if not yes and plan.leader is None:
            if form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise click.UsageError(
                    "can't ask for confirmation without a terminal; add --yes or --plan"
                )
            show_recovery(output.screen(), plan)
            click.confirm("Elect the replica with the most records?", abort=True, err=True)
        changes = elect_leaders(cluster, [name], unclean=True)
    return output.conclude_changes(form, "partitions", changes)


# -- text output -----------------------------------------------------------------------------


def show_partitions(screen: "Console", report: "PartitionsView") -> None:
    """Print partitions with their replicas, and a summary."""
    for number, partition in enumerate(report.partitions):
        if number:
            screen.print()
        _show_partition(screen, partition)
    if report.missing:
        screen.print(output.faint(report.missing))
    screen.print(output.verdict_line(report.holds, _verdict(report)))


def _verdict(report: "PartitionsView") -> str:
    if report.holds:
        return "every replica is in sync"
    good = sum(partition.holds for partition in report.partitions)
    silent = {r.broker for p in report.partitions for r in p.replicas if r.in_isr and r.unreachable}
    text = f"{good} of {len(report.partitions)} partitions are healthy"
    if silent:
        text += f"; in the ISR, but did not respond: {_names(sorted(silent))}"
    damaged = {replica.broker for p in report.partitions for replica in p.damaged}
    if damaged:
        text += f"; damaged: {_names(sorted(damaged))}"
    return text


def watch_partitions(
    fetch: "Callable[[], PartitionsView]", first: "PartitionsView"
) -> "PartitionsView":
    """Print the partitions every second until interrupted; return the last view."""
    from tidelog.shell.client.client_errors import ClientError

    screen = output.screen()
    report = first
    problem = ""
    try:
        while True:
            screen.clear()
            show_partitions(screen, report)
            if problem:
                screen.print(output.styled(problem, output.WARN))
            time.sleep(WATCH_S)
            try:
                report, problem = fetch(), ""
            except ClientError as error:
                problem = str(error)
    except KeyboardInterrupt:
        screen.clear()
        return report


def _show_partition(screen: "Console", partition: "PartitionView") -> None:
    leader = "no leader" if partition.leader is None else f"leader {partition.leader}"
    isr = ", ".join(map(str, partition.isr)) or "none"
    screen.print(
        output.heading(partition.name).append(
            f"  {leader}, leader epoch {partition.leader_epoch}; in sync: {isr}"
            f"{_min_isr(partition)}",
            style="default",
        ),
        soft_wrap=True,
    )
    for line in bars(partition.replicas):
        screen.print(output.indented(line))
    output.show_table(screen, _table(partition))
    for line in [*_notes(partition), *_history(partition)]:
        screen.print(output.indented(line))


def _min_isr(partition: "PartitionView") -> str:
    return "" if partition.min_isr is None else f" (min.insync.replicas {partition.min_isr})"


def bars(replicas: "list[ReplicaView]") -> "list[Text]":
    """Return a bar for each replica whose log end is known; no bars if all logs are empty."""
    known = [replica for replica in replicas if _end(replica) is not None]
    low = min((replica.log_start_offset or 0 for replica in known), default=0)
    high = max((_end(replica) or 0 for replica in known), default=0)
    if high <= low:
        return []
    watermarks = [each.high_watermark for each in known if each.high_watermark is not None]
    lines = []
    for replica in known:
        end = _end(replica) or 0
        start = replica.log_start_offset or 0
        watermark = replica.high_watermark
        committed = min(max(watermarks, default=start) if watermark is None else watermark, end)
        cells = [_cell(n, low, high, start, committed, end) for n in range(BAR_WIDTH)]
        if end > committed and UNCOMMITTED not in cells and end > start:
            last = max((n for n, c in enumerate(cells) if c != NOTHING), default=0)
            cells[last] = UNCOMMITTED  # uncommitted records are always visible
        sure = output.WARN if replica.unreachable else output.GOOD
        colour = sure if replica.in_isr else output.BAD
        bar = output.styled(f"{replica.broker:>4} ").append("".join(cells), colour)
        lines.append(bar.append(f" {end}"))
    return lines


def _end(replica: "ReplicaView") -> int | None:
    """Return the log end; for Kafka only the high watermark is known."""
    return replica.high_watermark if replica.log_end_offset is None else replica.log_end_offset


def _cell(number: int, low: int, high: int, start: int, committed: int, end: int) -> str:
    """Return the character for the offset in the middle of a cell."""
    offset = low + (high - low) * (number + 0.5) / BAR_WIDTH
    if not start <= offset < end:
        return NOTHING
    return COMMITTED if offset < committed else UNCOMMITTED


def _table(partition: "PartitionView") -> "Table":
    table = output.table(COLUMNS, numbers=NUMBERS)
    for replica in partition.replicas:
        in_sync = output.mark(replica.in_isr, "yes", "no")
        if replica.in_isr and replica.unreachable:
            in_sync = output.styled("uncertain", output.WARN)
        numbers = (
            replica.log_start_offset,
            replica.log_end_offset,
            replica.lag,
            replica.high_watermark,
            replica.last_stable_offset,
            replica.leader_epoch,
        )
        cells = [output.UNKNOWN if number is None else str(number) for number in numbers]
        role = output.styled(replica.role, output.WARN if replica.role == "unknown" else "")
        broker = output.styled(str(replica.broker), output.NAME)
        table.add_row(broker, role, in_sync, *cells, _epochs(replica.epochs))
    return table


def _epochs(epochs: list[list[int]] | None) -> str:
    """Return `0:0 1:120` (epoch 1 starts at offset 120), the newest EPOCHS_SHOWN only."""
    if epochs is None:
        return output.UNKNOWN
    shown = [f"{epoch}:{start}" for epoch, start in epochs[-EPOCHS_SHOWN:]]
    return " ".join(["…", *shown] if len(epochs) > EPOCHS_SHOWN else shown) or output.UNKNOWN


def _notes(partition: "PartitionView") -> "list[Text]":
    """Return the problems of a partition and its replicas."""
    notes = []
    if partition.leader is None:
        eligible = f"; eligible: {_names(partition.elr)}" if partition.elr else ""
        notes.append(output.styled(f"no leader: it can't be written or read{eligible}", output.BAD))
    if partition.lost:
        text = f"started without its log: {_names(partition.lost)}"
        if partition.leader is None:
            text += "; restore the last leader's folder, or elect another replica with"
            text += f" `tidelog partition recover {partition.name}`"
        notes.append(output.styled(text, output.BAD))
    if partition.min_isr is not None and len(partition.isr) < partition.min_isr:
        text = f"{len(partition.isr)} in sync, {partition.min_isr} required: acks=all is rejected"
        notes.append(output.styled(text, output.BAD))
    for replica in partition.damaged:
        damage = replica.damage or {}
        note = f"broker {replica.broker} is damaged from offset {damage['offset']} on"
        if replica.in_isr and len(partition.isr) == 1:
            note += ": no other replica is in sync, so it serves the remaining records"
        elif partition.leader is None:
            note += ": it is repaired when another replica leads"
        else:
            note += ": it copies the damaged records from the leader"
        notes.append(output.styled(f"{note} ({damage['reason']})", output.BAD))
    for replica in partition.replicas:
        if replica.unreachable:
            text = f"broker {replica.broker} did not respond: {replica.unreachable}"
            notes.append(output.styled(text, output.WARN))
        if not replica.in_isr:
            since = "" if replica.out_for_ms is None else f" for {duration(replica.out_for_ms)}"
            why = f": {replica.why_out}" if replica.why_out else ""
            text = f"broker {replica.broker} is out of the ISR{since}{why}"
            notes.append(output.styled(text, output.WARN))
    return notes


def _history(partition: "PartitionView") -> "list[Text]":
    """Return lines about an unclean election, and about truncations that lost records."""
    lines = []
    election = partition.unclean_election
    if election:
        old = _names(election["old_isr"])
        since = f"broker {election['leader']} leads since leader epoch {election['leader_epoch']}"
        text = f"unclean election: {since} instead of {old}; records that only those had are lost"
        if not old:
            text = f"unclean election: {since}; no replica was known to have every record"
        lines.append(output.styled(text, output.BAD))
    for loss in partition.losses:
        committed = loss["committed"]
        what = f"{committed} of them committed" if committed else "none of them committed"
        lines.append(
            output.styled(
                f"broker {loss['broker']} truncated offsets {loss['start']} to {loss['end'] - 1}"
                f" in leader epoch {loss['leader_epoch']}; {what}",
                output.BAD if committed else output.FAINT,
            )
        )
    return lines


def _names(brokers: list[int] | None) -> str:
    return ", ".join(f"broker {broker}" for broker in brokers or ())


def duration(ms: int) -> str:
    """Format as `250 ms`, `3.2 s`, `5 min`, `2 h`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    if ms < 3_600_000:
        return f"{ms // 60_000} min"
    return f"{ms // 3_600_000} h"


def show_recovery(screen: "Console", plan: "RecoveryView") -> None:
    """Print the candidates as a table, and what an election would do."""
    numbers = ["last epoch", "log end", "loses"]
    table = output.table(["broker", *numbers, "state"], numbers=numbers)
    for each in plan.candidates:
        figures = (each.last_epoch, each.log_end_offset, each.loses)
        cells = [output.UNKNOWN if figure is None else f"{figure:,}" for figure in figures]
        table.add_row(str(each.broker), *cells, each.state)
    screen.print(output.heading(plan.name))
    output.show_table(screen, table)
    if plan.committed_upto is not None:
        screen.print(output.faint(f"committed at least up to offset {plan.committed_upto:,}"))
    if plan.committed_and_missing:
        missing = plan.committed_and_missing
        text = f"at least {missing:,} committed records are on none of these replicas"
        screen.print(output.styled(text, output.BAD))
    screen.print(output.verdict_line(plan.complete, recovery_verdict(plan)))
    if plan.leader is None and plan.best is not None:
        for line in _next_steps(plan):
            screen.print(output.faint(line))


def _next_steps(plan: "RecoveryView") -> list[str]:
    steps = [f"to elect it: tidelog partition recover {plan.name}"]
    if plan.silent:
        steps.insert(0, f"start broker {', '.join(map(str, plan.silent))} first, if you can")
    return steps


def recovery_verdict(plan: "RecoveryView") -> str:
    """Return in one line what an election would do now."""
    silent = ", ".join(map(str, plan.silent))
    if plan.best is None:
        if not silent:
            return "no replica has records: all folders were lost; restore one of them"
        return f"no replica can lead: the logs of broker {silent} are unknown; start one of them"
    text = f"broker {plan.best.broker} has the most records of those that responded"
    if plan.leader is not None:
        text = f"broker {plan.leader} leads: no recovery needed"
    return f"{text}; the log of broker {silent} is unknown" if silent else text
