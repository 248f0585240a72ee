"""How `tidelog cluster info`, `brokers` and `health` show what they found."""

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.cli.remote.cluster_report import Ailing, Broker, Health, Summary

UNKNOWN = "–"
AILING_SHOWN = 20
_STEP = 1024


def show_info(screen: Console, summary: Summary) -> None:
    """The cluster, its brokers and its topics."""
    controller = "nobody" if summary.controller is None else f"broker {summary.controller}"
    screen.print(output.heading(f"{summary.kind} cluster {summary.cluster_id or UNKNOWN}"))
    screen.print(
        f"  controller: {controller}; brokers: {len(summary.brokers)}, topics:"
        f" {len(summary.topics)}, partitions: {summary.partitions}, replicas: {summary.replicas}"
    )
    show_brokers(screen, summary)
    numbers = ("partitions", "replicas of each")
    table = output.table(("topic", *numbers, ""), numbers=numbers)
    for topic in summary.topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if summary.topics:
        output.show_table(screen, table)


def show_brokers(screen: Console, summary: Summary) -> None:
    """A line for each broker."""
    numbers = ("epoch", "leads", "follows", "out of sync", "log size")
    table = output.table(("broker", "address", "rack", "state", *numbers), numbers=numbers)
    for broker in summary.brokers:
        address = UNKNOWN if broker.host is None else f"{broker.host}:{broker.port}"
        epoch = UNKNOWN if broker.broker_epoch is None else str(broker.broker_epoch)
        behind = broker.leads + broker.follows - broker.in_sync
        table.add_row(
            str(broker.id),
            address,
            broker.rack or UNKNOWN,
            _state(broker),
            epoch,
            str(broker.leads),
            str(broker.follows),
            Text(str(behind), output.WARN if behind else ""),
            UNKNOWN if broker.log_bytes is None else size(broker.log_bytes),
        )
    output.show_table(screen, table)


def show_brokers_judged(screen: Console, summary: Summary) -> None:
    """The same, and whether all of them are there."""
    show_brokers(screen, summary)
    away = summary.away()
    total = len(summary.brokers)
    told = f"{total - len(away)} of {total} brokers answer"
    if away:
        told += f"; away: {', '.join(map(str, away))}"
    screen.print(output.verdict_line(not away, told))


def _state(broker: Broker) -> Text:
    if broker.fenced:
        return Text("not in the cluster", output.BAD)
    if broker.unreachable:
        return Text(f"no answer: {broker.unreachable}", output.BAD)
    if broker.acting is False:
        return Text("does not serve", output.WARN)
    return Text("controller" if broker.controller else "up", output.GOOD)


def size(count: int) -> str:
    """Bytes in a unit that fits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def show_health(screen: Console, health: Health) -> None:
    """What is wrong, worst first; then what is no fault but worth knowing."""
    if health.no_controller:
        screen.print(Text("no controller: no leader can be elected now", output.BAD))
    for broker in health.brokers_away:
        screen.print(Text(f"broker {broker} is not in the cluster or does not answer", output.BAD))
    _list(screen, "offline: neither written nor read", health.offline, output.BAD)
    _list(screen, "under min ISR: acks=all is refused", health.under_min_isr, output.BAD)
    _list(screen, "under-replicated", health.under_replicated, output.WARN)
    _list(screen, "at min ISR: one less and acks=all is refused", health.at_min_isr, "")
    whose = "its" if len(health.not_preferred) == 1 else "their"
    _list(screen, f"not led by {whose} preferred replica", health.not_preferred, "")
    if health.min_isr_unknown:
        screen.print(output.faint("min.insync.replicas is not told; not judged by it"))
    told = f"partitions: {health.partitions}"
    if health.holds:
        screen.print(output.verdict_line(True, f"{told}; every replica is in sync"))
        return
    counts = (
        f"{len(health.offline)} offline, {len(health.under_min_isr)} under min ISR,"
        f" {len(health.under_replicated)} under-replicated"
    )
    screen.print(output.verdict_line(False, f"{told}; {counts}"))


def _list(screen: Console, title: str, found: list[Ailing], style: str) -> None:
    if not found:
        return
    screen.print(Text(f"{len(found)} {title}", style))
    for each in found[:AILING_SHOWN]:
        leader = "no leader" if each.leader is None else f"leader {each.leader}"
        wanted = "" if each.min_isr is None else f", min ISR {each.min_isr}"
        told = f"{each.name}  {leader}, in sync {each.isr} of {each.replicas}{wanted}"
        screen.print(output.indented(told))
    if len(found) > AILING_SHOWN:
        more = f"and {len(found) - AILING_SHOWN} more; --format json lists all"
        screen.print(output.indented(output.faint(more)))
