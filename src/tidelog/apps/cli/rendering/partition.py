"""Text output of `tidelog partition`: replicas' logs as bars, a table, problems; recovery plans.

A bar is one replica's log; all bars share one scale of offsets. It is solid up to the replica's
high watermark (or the leader's, if unknown), and light from there to the log end.
"""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.views.partition import PartitionsView, PartitionView, ReplicaView
from tidelog.apps.views.recovery import RecoveryView
from tidelog.shell.client.client_errors import ClientError

WATCH_S = 1.0
BAR_WIDTH = 40
EPOCHS_SHOWN = 4
UNKNOWN = "–"
COMMITTED, UNCOMMITTED, NOTHING = "█", "▒", " "
NUMBERS = ("log start", "log end", "lag", "HW", "LSO", "epoch")
COLUMNS = ("broker", "role", "in sync", *NUMBERS, "epoch:start")


def show(screen: Console, report: PartitionsView) -> None:
    """Print partitions with their replicas, and a summary."""
    for number, partition in enumerate(report.partitions):
        if number:
            screen.print()
        _show_partition(screen, partition)
    if report.missing:
        screen.print(output.faint(report.missing))
    screen.print(output.verdict_line(report.holds, _verdict(report)))


def _verdict(report: PartitionsView) -> str:
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


def watch(fetch: Callable[[], PartitionsView], first: PartitionsView) -> PartitionsView:
    """Print the partitions every second until interrupted; return the last view."""
    screen = output.screen()
    report = first
    problem = ""
    try:
        while True:
            screen.clear()
            show(screen, report)
            if problem:
                screen.print(Text(problem, output.WARN))
            time.sleep(WATCH_S)
            try:
                report, problem = fetch(), ""
            except ClientError as error:
                problem = str(error)
    except KeyboardInterrupt:
        screen.clear()
        return report


def _show_partition(screen: Console, partition: PartitionView) -> None:
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


def _min_isr(partition: PartitionView) -> str:
    return "" if partition.min_isr is None else f" (min.insync.replicas {partition.min_isr})"


def bars(replicas: list[ReplicaView]) -> list[Text]:
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
        bar = Text(f"{replica.broker:>4} ").append("".join(cells), colour)
        lines.append(bar.append(f" {end}"))
    return lines


def _end(replica: ReplicaView) -> int | None:
    """Return the log end; for Kafka only the high watermark is known."""
    return replica.high_watermark if replica.log_end_offset is None else replica.log_end_offset


def _cell(number: int, low: int, high: int, start: int, committed: int, end: int) -> str:
    """Return the character for the offset in the middle of a cell."""
    offset = low + (high - low) * (number + 0.5) / BAR_WIDTH
    if not start <= offset < end:
        return NOTHING
    return COMMITTED if offset < committed else UNCOMMITTED


def _table(partition: PartitionView) -> Any:
    table = output.table(COLUMNS, numbers=NUMBERS)
    for replica in partition.replicas:
        in_sync = output.mark(replica.in_isr, "yes", "no")
        if replica.in_isr and replica.unreachable:
            in_sync = Text("uncertain", output.WARN)
        numbers = (
            replica.log_start_offset,
            replica.log_end_offset,
            replica.lag,
            replica.high_watermark,
            replica.last_stable_offset,
            replica.leader_epoch,
        )
        cells = [UNKNOWN if number is None else str(number) for number in numbers]
        role = Text(replica.role, output.WARN if replica.role == "unknown" else "")
        broker = Text(str(replica.broker), output.NAME)
        table.add_row(broker, role, in_sync, *cells, _epochs(replica.epochs))
    return table


def _epochs(epochs: list[list[int]] | None) -> str:
    """Return `0:0 1:120` (epoch 1 starts at offset 120), the newest EPOCHS_SHOWN only."""
    if epochs is None:
        return UNKNOWN
    shown = [f"{epoch}:{start}" for epoch, start in epochs[-EPOCHS_SHOWN:]]
    return " ".join(["…", *shown] if len(epochs) > EPOCHS_SHOWN else shown) or UNKNOWN


def _notes(partition: PartitionView) -> list[Text]:
    """Return the problems of a partition and its replicas."""
    notes = []
    if partition.leader is None:
        eligible = f"; eligible: {_names(partition.elr)}" if partition.elr else ""
        notes.append(Text(f"no leader: it can't be written or read{eligible}", output.BAD))
    if partition.lost:
        text = f"started without its log: {_names(partition.lost)}"
        if partition.leader is None:
            text += "; restore the last leader's folder, or elect another replica with"
            text += f" `tidelog partition recover {partition.name}`"
        notes.append(Text(text, output.BAD))
    if partition.min_isr is not None and len(partition.isr) < partition.min_isr:
        text = f"{len(partition.isr)} in sync, {partition.min_isr} required: acks=all is rejected"
        notes.append(Text(text, output.BAD))
    for replica in partition.damaged:
        damage = replica.damage or {}
        note = f"broker {replica.broker} is damaged from offset {damage['offset']} on"
        if replica.in_isr and len(partition.isr) == 1:
            note += ": no other replica is in sync, so it serves the remaining records"
        elif partition.leader is None:
            note += ": it is repaired when another replica leads"
        else:
            note += ": it copies the damaged records from the leader"
        notes.append(Text(f"{note} ({damage['reason']})", output.BAD))
    for replica in partition.replicas:
        if replica.unreachable:
            text = f"broker {replica.broker} did not respond: {replica.unreachable}"
            notes.append(Text(text, output.WARN))
        if not replica.in_isr:
            since = "" if replica.out_for_ms is None else f" for {duration(replica.out_for_ms)}"
            why = f": {replica.why_out}" if replica.why_out else ""
            text = f"broker {replica.broker} is out of the ISR{since}{why}"
            notes.append(Text(text, output.WARN))
    return notes


def _history(partition: PartitionView) -> list[Text]:
    """Return the unclean election and the truncations that lost records, or may have."""
    lines = []
    election = partition.unclean_election
    if election:
        old = _names(election["old_isr"])
        since = f"broker {election['leader']} leads since leader epoch {election['leader_epoch']}"
        text = f"unclean election: {since} instead of {old}; records that only those had are lost"
        if not old:
            text = f"unclean election: {since}; no replica was known to have every record"
        lines.append(Text(text, output.BAD))
    for loss in partition.losses:
        committed = loss["committed"]
        what = f"{committed} of them committed" if committed else "none of them committed"
        lines.append(
            Text(
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


def show_recovery(screen: Console, plan: RecoveryView) -> None:
    """Print the candidates as a table, and what an election would do."""
    numbers = ["last epoch", "log end", "loses"]
    table = output.table(["broker", *numbers, "state"], numbers=numbers)
    for each in plan.candidates:
        figures = (each.last_epoch, each.log_end_offset, each.loses)
        cells = [UNKNOWN if figure is None else f"{figure:,}" for figure in figures]
        table.add_row(str(each.broker), *cells, each.state)
    screen.print(output.heading(plan.name))
    output.show_table(screen, table)
    if plan.committed_upto is not None:
        screen.print(output.faint(f"committed at least up to offset {plan.committed_upto:,}"))
    if plan.committed_and_gone:
        text = (
            f"at least {plan.committed_and_gone:,} committed records are on none of these replicas"
        )
        screen.print(Text(text, output.BAD))
    screen.print(output.verdict_line(plan.complete, recovery_verdict(plan)))
    if plan.leader is None and plan.best is not None:
        for line in _next_steps(plan):
            screen.print(output.faint(line))


def _next_steps(plan: RecoveryView) -> list[str]:
    steps = [f"to elect it: tidelog partition recover {plan.name}"]
    if plan.silent:
        steps.insert(0, f"start broker {', '.join(map(str, plan.silent))} first, if you can")
    return steps


def recovery_verdict(plan: RecoveryView) -> str:
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
