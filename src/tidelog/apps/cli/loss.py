"""`tidelog loss`: the records that were lost, from the loss ledgers of brokers."""

import time
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    LAST_RESORT,
    cluster_options,
    complete_topic,
    connected_cluster,
)
from tidelog.apps.cli.usage import Section, examples, usage_error

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.apps.views.losses import LossesView, LossView

_CAUSES = {
    "leader_change": "truncated after a leader change",
    "unclean_election": "unclean election",
    "leader_deleted": "the leader had deleted the records",
    "damage": "damaged records",
    "log_lost": "the folder of the log was missing",
    "replica_removed": "a reassignment removed the replica",
}


@click.group(
    cls=Section,
    epilog=examples("tidelog loss list", "tidelog loss list --topic orders --since -1d"),
)
def loss() -> None:
    """Show which records were lost, when and why."""


@loss.command(
    "list",
    epilog=examples(
        "tidelog loss list",
        f"tidelog loss list --topic orders --since -1d -b {LAST_RESORT}",
        "tidelog loss list --data tidelog-data",
        "tidelog loss list --format json",
    ),
)
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="Only losses of this topic.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only losses from this time on: 2024-01-31T10:00:00Z, milliseconds since 1970, or -1d.",
)
@click.option(
    "--data",
    metavar="DIR",
    help="Read the files of stopped brokers: a log directory, or a folder that contains several.",
)
@cluster_options()
def list_command(
    topic: str | None,
    since: str | None,
    data: str | None,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """List the records that replicas removed, and unclean elections.

    Each broker writes a loss to its ledger before it happens: truncations after a leader change or
    an unclean election, damaged records, and folders that are missing. The numbers say how many of
    the records were committed, and how many this broker had acknowledged as leader with which
    acks; "unknown" if another broker was the leader. The same record may be listed for several
    replicas. Exit code 0 means that every ledger was read.

    The entries come from the brokers' ledgers. The topic __tidelog_losses adds those of brokers
    that are down, or whose disk was replaced.
    """
    from tidelog.apps.cli.records.points_in_time import parse_time
    from tidelog.apps.views.losses import NoLedger, read_losses, view_losses

    try:
        since_ms = 0 if since is None else parse_time(since, int(time.time() * 1000))
    except ValueError as error:
        raise usage_error(f"--since: {error}") from error
    if data is not None:
        if bootstrap is not None:
            raise usage_error("--data and --bootstrap can't be used together")
        try:
            found = read_losses(data, topic, since_ms)
        except NoLedger as error:
            raise click.ClickException(str(error)) from error
    else:
        with connected_cluster(bootstrap, timeout_s) as cluster:
            found = view_losses(cluster, topic, since_ms)
    return output.conclude(form, found.holds, found.as_data(), lambda screen: _show(screen, found))


def _show(screen: "Console", found: "LossesView") -> None:
    for each in found.losses:
        serious = each.committed or each.acknowledged or each.records is None
        screen.print(output.styled(_heading(each), output.BAD if serious else ""))
        screen.print(f"    {describe(each)}", soft_wrap=True)
    if found.losses:
        screen.print(f"{len(found.losses)} {'entry' if len(found.losses) == 1 else 'entries'}")
    elif not found.unread:
        screen.print(output.verdict_line(True, "no record was lost"))
    for who, why in found.unread.items():
        screen.print(output.styled(f"the ledger of {who} was not read: {why}", output.WARN))
    if found.topic_problem is not None:
        screen.print(output.styled(f"the topic was not read: {found.topic_problem}", output.WARN))


def _heading(each: "LossView") -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(each.at_ms // 1000))
    what = _CAUSES.get(each.cause, each.cause)
    where = "" if each.source == "ledger" else f" (from the {each.source})"
    return f"{at}  {each.topic}/{each.partition}  broker {each.broker}: {what}{where}"


def describe(each: "LossView") -> str:
    """Return the offsets and numbers of a loss as a sentence."""
    who = "no broker" if each.leader is None else f"broker {each.leader}"
    leader = f"{who} led epoch {each.leader_epoch}"
    if each.event == "unclean_election":
        since = "" if each.start is None else f" from offset {each.start} on"
        return f"{leader}; committed records{since} may be lost"
    if each.start is None or each.end is None:
        return "all its records; their number is unknown"
    epochs = f"epoch {each.first_epoch}"
    if each.first_epoch is None:
        epochs = "an unknown epoch"
    elif each.last_epoch != each.first_epoch:
        epochs = f"epochs {each.first_epoch} to {each.last_epoch}"
    counts = (
        (each.committed, "known to be committed"),
        (each.acked_1, "acknowledged with acks=1"),
        (each.acked_all, "acknowledged with acks=all"),
        (each.not_acked, "not acknowledged"),
        (each.acks_unknown, "unknown whether acknowledged"),
    )
    parts = ", ".join(f"{count} {what}" for count, what in counts if count)
    offsets = f"offsets {each.start} to {each.end - 1} of {epochs}"
    records = f"{each.records} {'record' if each.records == 1 else 'records'}"
    return f"removed {offsets} ({records}: {parts}); {leader}"
