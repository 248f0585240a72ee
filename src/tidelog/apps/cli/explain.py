"""`tidelog explain`: why a partition is as it is, or was at an earlier moment, and what would
happen if its leader died."""

import os
import time
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    DATA,
    VARIABLE,
    cluster_options,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import examples, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.console.explanations import PastView
    from tidelog.apps.console.recorder import Recorder
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
    epilog=examples(
        "tidelog explain orders/0",
        "tidelog explain orders/0 --at -5m --data my-data",
        "tidelog explain orders/0 --at 2024-01-31T10:00:00Z -b broker1:9092",
        "tidelog explain story/0 --at 500 --history story.jsonl",
        "tidelog explain orders/0 --format json",
    ),
)
@click.argument(
    "name", metavar="TOPIC/PARTITION", callback=_parse_name, shell_complete=complete_topic
)
@click.option(
    "--at",
    "at_text",
    metavar="TIME",
    help="Explain an earlier moment from the history that the web console recorded:"
    " 2024-01-31T10:00:00Z, milliseconds since 1970, or -15m.",
)
@click.option(
    "--data",
    metavar="DIR",
    help=f"With --at: the data folder with the history.  [default: ./{DATA}, if it exists; for"
    " a cluster named by --bootstrap, the history by its id]",
)
@click.option(
    "--history",
    "history_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Explain a moment of a history file, by default the last one.",
)
@cluster_options()
def explain_command(
    name: tuple[str, int],
    at_text: str | None,
    data: str | None,
    history_file: str | None,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Explain a partition: what its high watermark waits for, and who would be elected.

    Also says which replicas are out of sync, since when and why, what would be lost if the leader
    died, and what replicas truncated. For a Kafka cluster, explains only what Kafka's protocol
    reports. Exit code 0 means that no problem was found: the partition has a leader and enough
    replicas in sync to survive the leader's death, and no loss or damage is known.

    With --at, explains an earlier moment from the history, without running brokers.
    """
    if at_text is not None or history_file is not None:
        past = _explain_past(name, at_text, data, history_file, bootstrap, timeout_s)
        report = past.report
        return output.conclude(
            form, report.holds, past.as_data(), lambda screen: show_past(screen, past)
        )
    if data is not None:
        raise usage_error("--data needs --at: it names the folder with the history")
    from tidelog.apps.explain.explain import explain_partition

    with connected_cluster(bootstrap, timeout_s) as cluster:
        report = explain_partition(cluster, *name)
    return output.conclude(
        form, report.holds, report.as_data(), lambda screen: show_explanations(screen, report)
    )


def _explain_past(
    name: tuple[str, int],
    at_text: str | None,
    data: str | None,
    history_file: str | None,
    bootstrap: str | None,
    timeout_s: float,
) -> "PastView":
    from tidelog.apps.cli.records.points_in_time import parse_time
    from tidelog.apps.console.explanations import explain_past
    from tidelog.apps.console.failure import Failure
    from tidelog.core.types import TopicPartition

    if sum(each is not None for each in (data, history_file, bootstrap)) > 1:
        raise usage_error("use one of --data, --history and --bootstrap")
    try:
        at_ms = None if at_text is None else parse_time(at_text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise usage_error(f"--at: {error}") from error
    recorder = _history(data, history_file, bootstrap, timeout_s)
    try:
        return explain_past(recorder, TopicPartition(*name), at_ms)
    except Failure as failure:
        raise click.ClickException(f"{failure.error}; {failure.advice}") from failure
    finally:
        recorder.close()


def _history(
    data: str | None, history_file: str | None, bootstrap: str | None, timeout_s: float
) -> "Recorder":
    from tidelog.apps.console.history.event_file import CannotRead, EventFile
    from tidelog.apps.console.history.place import history_path
    from tidelog.apps.console.history.store import HistoryStore

    if history_file is not None:
        try:
            return EventFile.open(history_file)
        except CannotRead as error:
            raise click.ClickException(str(error)) from error
    if data is None and not bootstrap and not os.environ.get(VARIABLE) and os.path.isdir(DATA):
        data = DATA
    cluster_id = None
    if data is None:
        with connected_cluster(bootstrap, timeout_s) as cluster:
            cluster_id = cluster.refresh([]).cluster_id
    path = history_path(data, cluster_id)
    store = HistoryStore(path, read_only=True)
    if store.span() is None:
        raise click.ClickException(
            f"{path} has no history; `tidelog console` records it while it runs"
        )
    return store


def show_past(screen: "Console", past: "PastView") -> None:
    """Print the explanations of an earlier moment, with its time."""
    seconds, millis = divmod(past.sampled_ms, 1000)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    screen.print(output.faint(f"as it was at {when}.{millis:03} UTC"))
    show_explanations(screen, past.report)


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
    text = "no problem found" if report.holds else f"problems: {bad} of {len(report.explanations)}"
    screen.print(output.verdict_line(report.holds, text))


def _heading(report: "ExplainView", topic: str) -> str:
    if topic == "election" and report.partition.leader is None:
        return "Election"
    return HEADINGS[topic]


def _show(screen: "Console", each: "Explanation") -> None:
    """Print a sign, and beside it the text; lines that do not fit continue below the text."""
    from rich.table import Table

    style = STYLES[each.severity]
    beside = Table.grid(padding=(0, 1))
    beside.add_row(output.styled(SIGNS[each.severity], style), output.styled(each.text, style))
    if each.detail:
        beside.add_row("", output.faint(each.detail))
    screen.print(output.indented(beside))
