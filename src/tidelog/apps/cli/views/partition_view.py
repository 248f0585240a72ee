"""How `tidelog partition describe` shows a partition: its replicas' logs as bars, a table, and
what is the matter.

A bar is a log on the scale of offsets that all replicas share: full up to the high watermark
that the replica knows (the leader's, if it did not say), light from there to its end.
"""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.cli.remote.partition_report import Partition, Replica, Report
from tidelog.shell.client.client_errors import ClientError

WATCH_S = 1.0
BAR_WIDTH = 40
EPOCHS_SHOWN = 4
UNKNOWN = "–"
COMMITTED, UNCOMMITTED, NOTHING = "█", "▒", " "
NUMBERS = ("log start", "log end", "lag", "HW", "LSO", "epoch")
COLUMNS = ("broker", "role", "in sync", *NUMBERS, "epoch:start")


def show(screen: Console, report: Report) -> None:
    """Everything."""
    for number, partition in enumerate(report.partitions):
        if number:
            screen.print()
        _show_partition(screen, partition)
    if report.missing:
        screen.print(output.faint(report.missing))
    screen.print(output.verdict_line(report.holds, _verdict(report)))


def _verdict(report: Report) -> str:
    if report.holds:
        return "every replica is in sync"
    good = sum(partition.holds for partition in report.partitions)
    silent = {r.broker for p in report.partitions for r in p.replicas if r.in_isr and r.unreachable}
    told = f"{good} of {len(report.partitions)} partitions are whole"
    if silent:
        told += f"; in the ISR, but did not answer: {_names(sorted(silent))}"
    damaged = {replica.broker for p in report.partitions for replica in p.damaged}
    if damaged:
        told += f"; damaged: {_names(sorted(damaged))}"
    return told


def watch(look: Callable[[], Report], first: Report) -> Report:
    """Show it anew every second until interrupted; what was seen last."""
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
                report, problem = look(), ""
            except ClientError as error:
                problem = str(error)
    except KeyboardInterrupt:
        screen.clear()
        return report


def _show_partition(screen: Console, partition: Partition) -> None:
    leader = "no leader" if partition.leader is None else f"leader {partition.leader}"
    isr = ", ".join(map(str, partition.isr)) or "nobody"
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
    for told in [*_notes(partition), *_history(partition)]:
        screen.print(output.indented(told))


def _min_isr(partition: Partition) -> str:
    return "" if partition.min_isr is None else f" (min.insync.replicas {partition.min_isr})"


def bars(replicas: list[Replica]) -> list[Text]:
    """A bar for each replica whose log end is known; none if there is nothing to compare."""
    known = [replica for replica in replicas if _end(replica) is not None]
    low = min((replica.log_start_offset or 0 for replica in known), default=0)
    high = max((_end(replica) or 0 for replica in known), default=0)
    if high <= low:
        return []
    told = [each.high_watermark for each in known if each.high_watermark is not None]
    lines = []
    for replica in known:
        end = _end(replica) or 0
        start = replica.log_start_offset or 0
        watermark = replica.high_watermark
        committed = min(max(told, default=start) if watermark is None else watermark, end)
        cells = [_cell(n, low, high, start, committed, end) for n in range(BAR_WIDTH)]
        if end > committed and UNCOMMITTED not in cells and end > start:
            last = max((n for n, c in enumerate(cells) if c != NOTHING), default=0)
            cells[last] = UNCOMMITTED  # however little, it is seen
        sure = output.WARN if replica.unreachable else output.GOOD
        colour = sure if replica.in_isr else output.BAD
        bar = Text(f"{replica.broker:>4} ").append("".join(cells), colour)
        lines.append(bar.append(f" {end}"))
    return lines


def _end(replica: Replica) -> int | None:
    """Of a Kafka only the high watermark is known."""
    return replica.high_watermark if replica.log_end_offset is None else replica.log_end_offset


def _cell(number: int, low: int, high: int, start: int, committed: int, end: int) -> str:
    """What lies in the middle of this cell."""
    offset = low + (high - low) * (number + 0.5) / BAR_WIDTH
    if not start <= offset < end:
        return NOTHING
    return COMMITTED if offset < committed else UNCOMMITTED


def _table(partition: Partition) -> Any:
    table = output.table(COLUMNS, numbers=NUMBERS)
    for replica in partition.replicas:
        in_sync = output.mark(replica.in_isr, "yes", "no")
        if replica.in_isr and replica.unreachable:
            in_sync = Text("unsure", output.WARN)
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
    """`0:0 1:120`: epoch 1 begins at offset 120. The oldest are left out."""
    if epochs is None:
        return UNKNOWN
    shown = [f"{epoch}:{start}" for epoch, start in epochs[-EPOCHS_SHOWN:]]
    return " ".join(["…", *shown] if len(epochs) > EPOCHS_SHOWN else shown) or UNKNOWN


def _notes(partition: Partition) -> list[Text]:
    """Who is not as it should be, and why."""
    notes = []
    if partition.leader is None:
        able = f"; {_names(partition.elr)} may lead" if partition.elr else ""
        notes.append(Text(f"nobody leads: it is neither written nor read{able}", output.BAD))
    if partition.lost:
        gone = f"lost its log: {_names(partition.lost)}"
        if partition.leader is None:
            gone += "; the others keep theirs until the last leader's folder is back, or an unclean"
            gone += " election goes on with what they have"
        notes.append(Text(gone, output.BAD))
    if partition.min_isr is not None and len(partition.isr) < partition.min_isr:
        told = f"{len(partition.isr)} in sync, {partition.min_isr} wanted: acks=all is refused"
        notes.append(Text(told, output.BAD))
    for replica in partition.damaged:
        damage = replica.damage or {}
        note = f"broker {replica.broker} is damaged from offset {damage['offset']} on"
        if replica.in_isr and len(partition.isr) == 1:
            note += ": no other replica is in sync, so it serves the remaining records"
        elif partition.leader is None:
            note += ": it is mended once another replica leads"
        else:
            note += ": it copies the damaged records from the leader"
        notes.append(Text(f"{note} ({damage['reason']})", output.BAD))
    for replica in partition.replicas:
        if replica.unreachable:
            told = f"broker {replica.broker} did not answer: {replica.unreachable}"
            notes.append(Text(told, output.WARN))
        if not replica.in_isr:
            since = "" if replica.out_for_ms is None else f" for {duration(replica.out_for_ms)}"
            why = f": {replica.why_out}" if replica.why_out else ""
            told = f"broker {replica.broker} is out of the ISR{since}{why}"
            notes.append(Text(told, output.WARN))
    return notes


def _history(partition: Partition) -> list[Text]:
    """What was lost, or may have been."""
    told = []
    election = partition.unclean_election
    if election:
        old = _names(election["old_isr"])
        since = f"broker {election['leader']} leads since leader epoch {election['leader_epoch']}"
        text = f"unclean election: {since} instead of {old}; records that only those had are lost"
        if not old:
            text = f"unclean election: {since}; no replica was known to have every record"
        told.append(Text(text, output.BAD))
    for loss in partition.losses:
        committed = loss["committed"]
        what = f"{committed} of them committed" if committed else "none of them committed"
        told.append(
            Text(
                f"broker {loss['broker']} truncated offsets {loss['start']} to {loss['end'] - 1}"
                f" in leader epoch {loss['leader_epoch']}; {what}",
                output.BAD if committed else output.FAINT,
            )
        )
    return told


def _names(brokers: list[int] | None) -> str:
    return ", ".join(f"broker {broker}" for broker in brokers or ())


def duration(ms: int) -> str:
    """`250 ms`, `3.2 s`, `5 min`, `2 h`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    if ms < 3_600_000:
        return f"{ms // 60_000} min"
    return f"{ms // 3_600_000} h"
