"""`tidelog broker start|kill|pause|resume`: single brokers of a cluster that `tidelog up` runs."""

import os
from collections.abc import Callable

import click

from tidelog.apps.cli.local.running import data_option
from tidelog.apps.cli.usage import examples, format_option

_REFUSED = "REFUSED"

ids_argument = click.argument(
    "brokers", metavar="ID...", nargs=-1, required=True, type=click.IntRange(0)
)


@click.command(
    epilog=examples("tidelog broker start 2", "tidelog broker start 2 3 --data my-data"),
)
@ids_argument
@data_option
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each broker to rejoin the cluster.",
)
@format_option()
def start(brokers: tuple[int, ...], data: str, wait: float, form: str) -> int:
    """Restart brokers that died or were killed.

    The `tidelog up` of the folder starts them, with their former settings and ports. Exit code 0
    means that all of them rejoined the cluster.
    """
    from tidelog.shell.supervisor.operating import one_broker

    return _each(brokers, form, lambda broker: one_broker.start(_folder(data), broker, wait))


@click.command(epilog=examples("tidelog broker kill 2", "tidelog broker kill 1 --data my-data"))
@ids_argument
@data_option
@format_option()
def kill(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Kill brokers with SIGKILL, as a crash would. Returns when their processes are gone."""
    from tidelog.shell.supervisor.operating import one_broker

    return _each(brokers, form, lambda broker: one_broker.kill(_folder(data), broker))


@click.command(epilog=examples("tidelog broker pause 2"))
@ids_argument
@data_option
@format_option()
def pause(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Pause brokers with SIGSTOP: they hang, and their connections stay open."""
    from tidelog.shell.supervisor.operating import one_broker

    return _each(brokers, form, lambda broker: one_broker.pause(_folder(data), broker))


@click.command(epilog=examples("tidelog broker resume 2"))
@ids_argument
@data_option
@format_option()
def resume(brokers: tuple[int, ...], data: str, form: str) -> int:
    """Resume paused brokers with SIGCONT."""
    from tidelog.shell.supervisor.operating import one_broker

    return _each(brokers, form, lambda broker: one_broker.resume(_folder(data), broker))


COMMANDS: dict[str, click.Command] = {
    "start": start,
    "kill": kill,
    "pause": pause,
    "resume": resume,
}


def _folder(data: str) -> str:
    return os.path.abspath(data)


def _each(brokers: tuple[int, ...], form: str, act: Callable[[int], str]) -> int:
    """Apply `act` to each broker in turn; return the exit code."""
    from tidelog.apps.changes.outcome import Change, done
    from tidelog.apps.cli.output import conclude_changes
    from tidelog.shell.supervisor.preflight.refusal import Refusal

    changes = []
    for broker in dict.fromkeys(brokers):
        try:
            changes.append(done(str(broker), act(broker)))
        except Refusal as refusal:
            changes.append(Change(str(broker), "", _REFUSED, str(refusal)))
    return conclude_changes(form, "brokers", changes)
