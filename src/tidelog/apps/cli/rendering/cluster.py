"""Text output of `tidelog cluster info`, `brokers` and `health`."""

from collections import Counter

from rich.console import Console
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.apps.views.broker import BrokerView
from tidelog.apps.views.cluster import ClusterView, HealthView, PartitionProblem

UNKNOWN = "–"
PROBLEMS_SHOWN = 20
INTERNAL = "__"
"""The prefix of internal topics."""
_STEP = 1024


def show_info(screen: Console, summary: ClusterView) -> None:
    """Print the cluster, its brokers and its topics."""
    controller = "none" if summary.controller is None else f"broker {summary.controller}"
    screen.print(output.heading(f"{summary.kind} cluster {summary.cluster_id or UNKNOWN}"))
    screen.print(
        f"  controller: {controller}; brokers: {len(summary.brokers)}, topics:"
        f" {len(summary.topics)}, partitions: {summary.partitions}, replicas: {summary.replicas}"
    )
    show_brokers(screen, summary)
    numbers = ("partitions", "replication factor")
    table = output.table(("topic", *numbers, ""), numbers=numbers)
    for topic in summary.topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if summary.topics:
        output.show_table(screen, table)


def show_brokers(screen: Console, summary: ClusterView) -> None:
    """Print a line for each broker."""
    numbers = ("epoch", "leads", "follows", "out of sync", "log size")
    table = output.table(("broker", "address", "rack", "state", *numbers), numbers=numbers)
    for broker in summary.brokers:
        address = f"{broker.host}:{broker.port}" if broker.host else UNKNOWN
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


def show_brokers_checked(screen: Console, summary: ClusterView) -> None:
    """Print a line for each broker, and whether all of them respond."""
    show_brokers(screen, summary)
    unavailable = summary.unavailable_brokers()
    total = len(summary.brokers)
    text = f"{total - len(unavailable)} of {total} brokers respond"
    if unavailable:
        text += f"; unavailable: {', '.join(map(str, unavailable))}"
    screen.print(output.verdict_line(not unavailable, text))


def _state(broker: BrokerView) -> Text:
    if not broker.registered:
        return Text("not registered", output.BAD)
    if broker.fenced:
        return Text("offline (fenced)", output.BAD)
    if broker.unreachable:
        return Text(f"no response: {broker.unreachable}", output.BAD)
    if broker.acting is False:
        return Text("lost its session", output.WARN)
    return Text("controller" if broker.controller else "up", output.GOOD)


def size(count: int) -> str:
    """Format a byte count with a unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def show_health(screen: Console, health: HealthView) -> None:
    """Print the problems, worst first, and what may become one."""
    if health.no_controller:
        screen.print(Text("no controller: no leader can be elected", output.BAD))
    for broker in health.brokers_away:
        screen.print(Text(f"broker {broker} is offline (fenced) or does not respond", output.BAD))
    whose = "its" if len(health.not_preferred) == 1 else "their"
    named: set[str] = set()
    for title, found, style in (
        ("offline: no leader", health.offline, output.BAD),
        ("under min ISR: writes with acks=all are rejected", health.under_min_isr, output.BAD),
        ("under-replicated", health.under_replicated, output.WARN),
        (
            "at min ISR: if one more replica fails, writes with acks=all are rejected",
            health.at_min_isr,
            "",
        ),
        (f"not led by {whose} preferred replica", health.not_preferred, ""),
    ):
        _list(screen, title, found, style, named)
        named.update(each.name for each in found)
    for each in health.damaged[:PROBLEMS_SHOWN]:
        what = f"{each.topic}/{each.partition}: the replica of broker {each.broker} is damaged"
        screen.print(Text(f"{what} from offset {each.offset} on", output.BAD))
    if health.min_isr_unknown:
        screen.print(output.faint("min.insync.replicas is unknown, so it was not checked"))
    text = f"partitions: {health.partitions}"
    if health.holds and health.not_preferred:
        screen.print(output.faint("to elect preferred leaders now: tidelog partition elect --all"))
    if health.holds:
        screen.print(output.verdict_line(True, f"{text}; every replica is in sync"))
        return
    counts = (
        f"{len(health.offline)} offline, {len(health.under_min_isr)} under min ISR,"
        f" {len(health.under_replicated)} under-replicated"
    )
    if health.damaged:
        counts += f", {len(health.damaged)} with a damaged replica"
    if health.brokers_away:
        counts += f"; brokers not responding: {', '.join(map(str, health.brokers_away))}"
    screen.print(output.verdict_line(False, f"{text}; {counts}"))


def _list(
    screen: Console, title: str, found: list[PartitionProblem], style: str, named: set[str]
) -> None:
    """Print how many there are, and those that no list above has named. The partitions of an
    internal topic share one line, because they are many."""
    if not found:
        return
    new = [each for each in found if each.name not in named]
    above = len(found) - len(new)
    note = "" if not above else ", listed above" if not new else f", {above} of them listed above"
    screen.print(Text(f"{len(found)} {title}{note}", style))
    others = [each for each in new if not each.topic.startswith(INTERNAL)]
    for each in others[:PROBLEMS_SHOWN]:
        leader = "no leader" if each.leader is None else f"leader {each.leader}"
        wanted = "" if each.min_isr is None else f", min ISR {each.min_isr}"
        text = f"{each.name}  {leader}, in sync {each.isr} of {each.replicas}{wanted}"
        screen.print(output.indented(text))
    if len(others) > PROBLEMS_SHOWN:
        more = f"and {len(others) - PROBLEMS_SHOWN} more; --format json lists all"
        screen.print(output.indented(output.faint(more)))
    own = Counter(each.topic for each in new if each.topic.startswith(INTERNAL))
    for topic, count in own.items():
        screen.print(output.indented(f"{topic}: {count} partition{'' if count == 1 else 's'}"))
