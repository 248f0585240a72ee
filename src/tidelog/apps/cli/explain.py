"""`tidelog explain`: why a partition is as it is, and what would happen if its leader died."""

from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import cluster_options, complete_topic, connected_cluster
from tidelog.apps.cli.usage import examples

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.explain.explain import ExplainView
    from tidelog.apps.explain.situation import Explanation

HEADINGS = {
    "leader": "Leader",
    "high-watermark": "High watermark (HW)",
    "isr": "In-sync replicas (ISR)",
    "reassignment": "Reassignment",
    "lso": "Last stable offset (LSO)",
    "election": "If the leader died now",
    "loss": "Truncated and lost records",
    "damage": "Damage",
}
STYLES = {"ok": output.GOOD, "info": "", "warn": output.WARN, "bad": output.BAD}
SIGNS = {"ok": "✓", "info": "·", "warn": "!", "bad": "✗"}


def _parse_name(ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int]:
    topic, _, number = text.partition("/")
    if not topic or not number.isdecimal():
        raise click.UsageError(
            f"{text!r} is not in the form TOPIC/PARTITION, such as orders/0", ctx
        )
    return topic, int(number)


@click.command(
    "explain",
    epilog=examples("tidelog explain orders/0", "tidelog explain orders/0 --format json"),
)
@click.argument(
    "name", metavar="TOPIC/PARTITION", callback=_parse_name, shell_complete=complete_topic
)
@cluster_options()
def explain_command(
    name: tuple[str, int], bootstrap: str | None, timeout_s: float, form: str
) -> int:
    """Explain a partition: what its high watermark waits for, and who would be elected.

    Also says which replicas are out of sync, since when and why, what would be lost if the leader
    died, and what replicas truncated. For a Kafka cluster, explains only what Kafka's protocol
    reports. Exit code 0 means: nothing is bad. The partition then has a leader and enough replicas
    in sync to survive the leader's death, and no loss or damage is known.
    """
    from tidelog.apps.explain.explain import explain_partition

    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = explain_partition(cluster, *name)
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: show_explanations(screen, report)
    )


def show_explanations(screen: "Console", report: "ExplainView") -> None:
    """Print the explanations under one heading for each topic."""
    screen.print(output.heading(report.partition.name))
    shown = ""
    for each in report.explanations:
        if each.topic != shown:
            shown = each.topic
            screen.print(output.heading(_heading(report, shown)))
        _show(screen, each)
    if report.missing:
        screen.print(output.faint(report.missing))
    bad = sum(each.severity == "bad" for each in report.explanations)
    text = "nothing is bad" if report.holds else f"{bad} of {len(report.explanations)} are bad"
    screen.print(output.verdict_line(report.holds, text))


def _heading(report: "ExplainView", topic: str) -> str:
    if topic == "election" and report.partition.leader is None:
        return "Election"
    return HEADINGS[topic]


def _show(screen: "Console", each: "Explanation") -> None:
    line = output.styled(f"{SIGNS[each.severity]} {each.text}", STYLES[each.severity])
    screen.print(output.indented(line))
    if each.detail:
        screen.print(output.indented(output.faint(each.detail), 4))
