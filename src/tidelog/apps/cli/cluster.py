"""`tidelog cluster`: brokers and topics of a running cluster, and its health."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import LAST_RESORT, cluster_options, connected_cluster
from tidelog.apps.cli.usage import Section, examples

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tidelog.apps.views.broker import BrokerView
    from tidelog.apps.views.cluster import ClusterView, HealthView, PartitionProblem

PROBLEMS_SHOWN = 20
INTERNAL = "__"
"""The prefix of internal topics."""


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog cluster info",
        f"tidelog cluster health -b {LAST_RESORT}",
        "tidelog cluster brokers --format json",
        "tidelog cluster unregister 3",
    ),
)
def cluster() -> None:
    """Show brokers, topics and health of a running cluster (Tidelog or Kafka)."""


@cluster.command(
    "info", epilog=examples("tidelog cluster info", f"tidelog cluster info -b {LAST_RESORT}")
)
@cluster_options()
def info_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show the cluster's id, controller, brokers and topics."""
    from tidelog.apps.views.cluster import view_cluster

    with connected_cluster(bootstrap, timeout_s) as connected:
        summary = view_cluster(connected)
    return output.conclude(
        form, True, summary.as_data(), lambda screen: _show_info(screen, summary)
    )


@cluster.command(
    "health", epilog=examples("tidelog cluster health", "tidelog cluster health --format json")
)
@cluster_options()
def health_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Find partitions that are offline, under min ISR, under-replicated or damaged.

    Exit code 0 means: there is a controller, every broker responds and reaches the metadata store,
    and every partition has a leader and all replicas in sync and undamaged. Partitions at min ISR
    and partitions not led by their preferred replica are listed, but do not change the exit code.
    """
    from tidelog.apps.views.cluster import view_health

    with connected_cluster(bootstrap, timeout_s) as connected:
        health = view_health(connected)
    return output.conclude(
        form, health.holds, health.as_data(), lambda screen: show_health(screen, health)
    )


@cluster.command(
    "brokers", epilog=examples("tidelog cluster brokers", "tidelog cluster brokers --format json")
)
@cluster_options()
def brokers_command(bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Show each broker: address, rack, state, epoch, leader and follower counts, log size.

    A broker that is down stays listed as offline until it is unregistered. Exit code 0 means
    that every registered broker is up and responds.
    """
    from tidelog.apps.views.cluster import view_cluster

    with connected_cluster(bootstrap, timeout_s) as connected:
        summary = view_cluster(connected)
    data = {"brokers": summary.as_data()["brokers"]}
    return output.conclude(
        form,
        not summary.unavailable_brokers(),
        data,
        lambda screen: _show_brokers_checked(screen, summary),
    )


@cluster.command(
    "unregister",
    epilog=examples("tidelog cluster unregister 3", "tidelog cluster unregister 3 --format json"),
)
@click.argument("broker", metavar="ID", type=click.IntRange(min=0))
@cluster_options()
def unregister_command(broker: int, bootstrap: str | None, timeout_s: float, form: str) -> int:
    """Remove the registration of a broker that will not return.

    New topics get no replicas on it. Its existing replicas stay assigned to it; move them with
    `tidelog reassign`. A running broker leaves the cluster, and joins again when it is
    restarted.
    """
    from tidelog.apps.changes.outcome import done, rejected
    from tidelog.shell.client.admin import unregister_broker

    with connected_cluster(bootstrap, timeout_s) as connected:
        outcome = unregister_broker(connected, broker)
    if outcome.holds:
        change = done(outcome.name, f"broker {broker} is no longer registered")
    else:
        change = rejected(f"unregistering broker {broker}", outcome)
    return output.conclude_changes(form, "brokers", [change])


# -- text output -----------------------------------------------------------------------------


def _show_info(screen: "Console", summary: "ClusterView") -> None:
    """Print the cluster, its brokers and its topics."""
    controller = "none" if summary.controller is None else f"broker {summary.controller}"
    screen.print(output.heading(f"{summary.kind} cluster {summary.cluster_id or output.UNKNOWN}"))
    screen.print(
        f"  controller: {controller}; brokers: {len(summary.brokers)}, topics:"
        f" {len(summary.topics)}, partitions: {summary.partitions}, replicas: {summary.replicas}"
    )
    _show_brokers(screen, summary)
    numbers = ("partitions", "replication factor")
    table = output.table(("topic", *numbers, ""), numbers=numbers)
    for topic in summary.topics:
        note = "internal" if topic.internal else ""
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), note)
    if summary.topics:
        output.show_table(screen, table)


def _show_brokers(screen: "Console", summary: "ClusterView") -> None:
    """Print a line for each broker."""
    numbers = ("epoch", "leads", "follows", "out of sync", "log size")
    table = output.table(("broker", "address", "rack", "state", *numbers), numbers=numbers)
    for broker in summary.brokers:
        address = f"{broker.host}:{broker.port}" if broker.host else output.UNKNOWN
        epoch = output.UNKNOWN if broker.broker_epoch is None else str(broker.broker_epoch)
        behind = broker.leads + broker.follows - broker.in_sync
        table.add_row(
            str(broker.id),
            address,
            broker.rack or output.UNKNOWN,
            _state(broker),
            epoch,
            str(broker.leads),
            str(broker.follows),
            output.styled(str(behind), output.WARN if behind else ""),
            output.UNKNOWN if broker.log_bytes is None else output.size(broker.log_bytes),
        )
    output.show_table(screen, table)


def _show_brokers_checked(screen: "Console", summary: "ClusterView") -> None:
    """Print a line for each broker, and whether all of them respond."""
    _show_brokers(screen, summary)
    unavailable = summary.unavailable_brokers()
    total = len(summary.brokers)
    text = f"{total - len(unavailable)} of {total} brokers respond"
    if unavailable:
        text += f"; unavailable: {', '.join(map(str, unavailable))}"
    screen.print(output.verdict_line(not unavailable, text))


def _state(broker: "BrokerView") -> "Text":
    if not broker.registered:
        return output.styled("not registered", output.BAD)
    if broker.fenced:
        return output.styled("offline (fenced)", output.BAD)
    if broker.unreachable:
        return output.styled(f"no response: {broker.unreachable}", output.BAD)
    if broker.detached:
        return output.styled("serves without the metadata store", output.WARN)
    if broker.acting is False:
        return output.styled("lost its session", output.WARN)
    return output.styled("controller" if broker.controller else "up", output.GOOD)


def show_health(screen: "Console", health: "HealthView") -> None:
    """Print the problems, worst first, then states that may become a problem."""
    if health.no_controller:
        screen.print(output.styled("no controller: no leader can be elected", output.BAD))
    for broker in health.brokers_away:
        screen.print(
            output.styled(f"broker {broker} is offline (fenced) or does not respond", output.BAD)
        )
    if health.without_store:
        brokers = ", ".join(map(str, health.without_store))
        what = "broker" if len(health.without_store) == 1 else "brokers"
        text = f"{what} {brokers} can't reach the metadata store; restart no broker now"
        screen.print(output.styled(text, output.BAD))
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
        screen.print(output.styled(f"{what} from offset {each.offset} on", output.BAD))
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
    if health.without_store:
        counts += f"; without the metadata store: {', '.join(map(str, health.without_store))}"
    screen.print(output.verdict_line(False, f"{text}; {counts}"))


def _list(
    screen: "Console", title: str, found: "list[PartitionProblem]", style: str, named: set[str]
) -> None:
    """Print the count of these partitions, and the partitions that no list above has named.

    The partitions of an internal topic share one line, because they are many.
    """
    if not found:
        return
    new = [each for each in found if each.name not in named]
    above = len(found) - len(new)
    note = "" if not above else ", listed above" if not new else f", {above} of them listed above"
    screen.print(output.styled(f"{len(found)} {title}{note}", style))
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
